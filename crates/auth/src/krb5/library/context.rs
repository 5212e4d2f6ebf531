//! Contexts of the library, and what belongs to them: principals, key tables, caches.

use std::ffi::{CStr, c_int, c_uint};
use std::ptr::null_mut;

use super::error::{KerberosError, LibraryFault, text};
use super::functions::{Functions, KrbCreds, KrbData, KrbKeytabEntry, Raw, functions};

/// A principal has no local name.
const NO_LOCAL_NAME: i32 = -1_765_328_208;
/// Maximum length of a local name with its NUL, in bytes.
const LOCAL_NAME_BYTES: usize = 256;
/// Maximum length of the name of a key table, in bytes.
const KEYTAB_NAME_BYTES: usize = 4096;

/// A context of the library: its configuration and error texts. One exchange at a time uses it.
pub(in crate::krb5) struct KerberosContext {
    pub(super) library: &'static Functions,
    pub(super) raw: Raw,
    /// Set by a [`super::ContextPool`], which keeps contexts of one generation.
    pub(super) generation: u64,
}

// SAFETY: A context may be used by any thread, by one at a time. It is not `Sync`, because the pointer
// is not.
unsafe impl Send for KerberosContext {}

impl Drop for KerberosContext {
    fn drop(&mut self) {
        // SAFETY: The context was made by `init_context` and is released once.
        unsafe { (self.library.free_context)(self.raw) }
    }
}

/// The function that releases an object.
#[derive(Clone, Copy)]
enum Release {
    Silent(unsafe extern "C" fn(Raw, Raw)),
    Reporting(unsafe extern "C" fn(Raw, Raw) -> i32),
}

/// An object of a context, which is released on drop.
pub(super) struct Owned<'c> {
    context: &'c KerberosContext,
    pub(super) raw: Raw,
    release: Release,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        // SAFETY: The object was made by this context, belongs to this value alone, and is released once
        // by the function for its type.
        unsafe {
            match self.release {
                Release::Silent(release) => release(self.context.raw, self.raw),
                Release::Reporting(release) => {
                    release(self.context.raw, self.raw);
                }
            }
        }
    }
}

impl KerberosContext {
    /// Creates a context with the configuration of the system and the environment. Blocks.
    ///
    /// # Errors
    /// The library is missing, or its configuration is malformed.
    pub(in crate::krb5) fn new() -> Result<Self, LibraryFault> {
        let library = functions()?;
        let mut raw = null_mut();
        // SAFETY: The pointer is valid for the result.
        let code = unsafe { (library.init_context)(&raw mut raw) };
        if code != 0 || raw.is_null() {
            return Err(LibraryFault::of_configuration(code));
        }
        Ok(Self { library, raw, generation: 0 })
    }

    pub(super) fn check(&self, code: i32) -> Result<(), KerberosError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: The context is valid. The text is released below.
        let message = unsafe { (self.library.get_error_message)(self.raw, code) };
        if message.is_null() {
            return Err(KerberosError { code, text: format!("error {code}") });
        }
        // SAFETY: The text is not null, ends with a NUL, and is released once after it was copied.
        let text = unsafe {
            let text = CStr::from_ptr(message).to_string_lossy().into_owned();
            (self.library.free_error_message)(self.raw, message);
            text
        };
        Err(KerberosError { code, text })
    }

    /// Takes ownership of an object that a function has made.
    fn own(&self, code: i32, raw: Raw, release: Release) -> Result<Owned<'_>, KerberosError> {
        self.check(code)?;
        if raw.is_null() {
            return Err(KerberosError::new("the library returned nothing"));
        }
        Ok(Owned { context: self, raw, release })
    }

    pub(super) fn principal(&self, name: &str) -> Result<Owned<'_>, KerberosError> {
        let (name, mut raw) = (text(name)?, null_mut());
        // SAFETY: All pointers are valid, and the name ends with a NUL.
        let code = unsafe { (self.library.parse_name)(self.raw, name.as_ptr(), &raw mut raw) };
        self.own(code, raw, Release::Silent(self.library.free_principal))
    }

    /// Returns the name of a principal.
    pub(super) fn name_of(&self, principal: Raw) -> Result<String, KerberosError> {
        let mut name = null_mut();
        // SAFETY: The principal is one of the library, and the pointer is valid for the result.
        self.check(unsafe { (self.library.unparse_name)(self.raw, principal, &raw mut name) })?;
        // SAFETY: The function succeeded, so the name ends with a NUL. It is released once.
        unsafe {
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            (self.library.free_unparsed_name)(self.raw, name);
            Ok(text)
        }
    }

    /// Returns the whole name of a principal, with the default realm if it has none.
    pub(in crate::krb5) fn full_name(&self, name: &str) -> Result<String, KerberosError> {
        self.name_of(self.principal(name)?.raw)
    }

    /// Returns the local name of a principal; `None` if it has none. It can ask a directory server.
    pub(in crate::krb5) fn local_name(&self, principal: &str) -> Result<Option<String>, KerberosError> {
        let principal = self.principal(principal)?;
        let mut name = [0_u8; LOCAL_NAME_BYTES];
        let length = c_int::try_from(name.len() - 1).unwrap_or(0);
        // SAFETY: The name has room for `length` bytes and a NUL.
        let code = unsafe {
            (self.library.aname_to_localname)(self.raw, principal.raw, length, name.as_mut_ptr().cast())
        };
        if code == NO_LOCAL_NAME {
            return Ok(None);
        }
        self.check(code)?;
        let name =
            CStr::from_bytes_until_nul(&name).map_err(|_| KerberosError::new("the name is too long"))?;
        Ok(Some(name.to_string_lossy().into_owned()))
    }

    pub(super) fn keytab(&self, name: Option<&str>) -> Result<Owned<'_>, KerberosError> {
        let name = name.map(text).transpose()?;
        let mut raw = null_mut();
        // SAFETY: All pointers are valid, and the name ends with a NUL.
        let code = unsafe {
            match &name {
                Some(name) => (self.library.kt_resolve)(self.raw, name.as_ptr(), &raw mut raw),
                None => (self.library.kt_default)(self.raw, &raw mut raw),
            }
        };
        self.own(code, raw, Release::Reporting(self.library.kt_close))
    }

    /// Returns the name of a key table with its type; `None` is the default.
    pub(in crate::krb5) fn keytab_name(&self, keytab: Option<&str>) -> Result<String, KerberosError> {
        let keytab = self.keytab(keytab)?;
        let mut name = vec![0_u8; KEYTAB_NAME_BYTES];
        let length = c_uint::try_from(name.len()).unwrap_or(0);
        // SAFETY: The name has room for `length` bytes.
        let code =
            unsafe { (self.library.kt_get_name)(self.raw, keytab.raw, name.as_mut_ptr().cast(), length) };
        self.check(code)?;
        let name =
            CStr::from_bytes_until_nul(&name).map_err(|_| KerberosError::new("its name is too long"))?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Checks that a key table has a key of a service. Blocks.
    pub(in crate::krb5) fn check_key(
        &self,
        keytab: Option<&str>,
        service: &str,
    ) -> Result<(), KerberosError> {
        let (keytab, service) = (self.keytab(keytab)?, self.principal(service)?);
        let mut entry = KrbKeytabEntry::empty();
        // SAFETY: All objects belong to this context, and the entry has room for the result. Zeros select
        // any version and any type of key.
        let code =
            unsafe { (self.library.kt_get_entry)(self.raw, keytab.raw, service.raw, 0, 0, &raw mut entry) };
        self.check(code)?;
        // SAFETY: The function succeeded, so the entry is initialized. It is wiped and released once.
        self.check(unsafe { (self.library.free_keytab_entry_contents)(self.raw, &raw mut entry) })
    }

    pub(super) fn cache(&self, name: Option<&str>) -> Result<Owned<'_>, KerberosError> {
        let name = name.map(text).transpose()?;
        let mut raw = null_mut();
        // SAFETY: All pointers are valid, and the name ends with a NUL.
        let code = unsafe {
            match &name {
                Some(name) => (self.library.cc_resolve)(self.raw, name.as_ptr(), &raw mut raw),
                None => (self.library.cc_default)(self.raw, &raw mut raw),
            }
        };
        self.own(code, raw, Release::Reporting(self.library.cc_close))
    }

    /// Returns the name of a cache with its type; `None` is the default.
    pub(in crate::krb5) fn cache_name(&self, cache: Option<&str>) -> Result<String, KerberosError> {
        let (cache, mut name) = (self.cache(cache)?, null_mut());
        // SAFETY: The cache belongs to this context, and the pointer is valid for the result.
        self.check(unsafe { (self.library.cc_get_full_name)(self.raw, cache.raw, &raw mut name) })?;
        // SAFETY: The function succeeded, so the name ends with a NUL. It is released once.
        unsafe {
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            (self.library.free_string)(self.raw, name);
            Ok(text)
        }
    }

    pub(super) fn owner(&self, cache: &Owned<'_>) -> Result<Owned<'_>, KerberosError> {
        let mut raw = null_mut();
        // SAFETY: The cache belongs to this context, and the pointer is valid for the result.
        let code = unsafe { (self.library.cc_get_principal)(self.raw, cache.raw, &raw mut raw) };
        self.own(code, raw, Release::Silent(self.library.free_principal))
    }

    /// Returns the service that grants tickets in the realm of a principal.
    pub(super) fn granting_service(&self, principal: &str) -> Result<Owned<'_>, KerberosError> {
        let realm = principal.rsplit('@').next().unwrap_or_default();
        self.principal(&format!("krbtgt/{realm}@{realm}"))
    }

    /// Returns the owner of a cache, and the end of its ticket-granting ticket in seconds since 1970.
    pub(in crate::krb5) fn ticket_end(&self, cache: Option<&str>) -> Result<(String, u32), KerberosError> {
        let cache = self.cache(cache)?;
        let owner = self.owner(&cache)?;
        let name = self.name_of(owner.raw)?;
        let service = self.granting_service(&name)?;
        let mut wanted = KrbCreds::between(owner.raw, service.raw);
        let mut found = KrbCreds::between(null_mut(), null_mut());
        // SAFETY: All objects belong to this context, and the last one has room for the result.
        let code = unsafe {
            (self.library.cc_retrieve_cred)(self.raw, cache.raw, 0, &raw mut wanted, &raw mut found)
        };
        self.check(code)?;
        let [_, _, end, _] = found.times;
        // SAFETY: The function succeeded, so the credentials are initialized. They are released once.
        unsafe { (self.library.free_cred_contents)(self.raw, &raw mut found) };
        Ok((name, end))
    }

    /// Copies a message that a function has made, and releases it.
    pub(super) fn message(&self, code: i32, mut made: KrbData) -> Result<Vec<u8>, KerberosError> {
        self.check(code)?;
        let length = usize::try_from(made.length).unwrap_or(0);
        if made.data.is_null() || length == 0 {
            return Err(KerberosError::new("the library made an empty message"));
        }
        // SAFETY: The function succeeded, so the message has this length. It is released once after it
        // was copied.
        unsafe {
            let bytes = std::slice::from_raw_parts(made.data.cast::<u8>(), length).to_vec();
            (self.library.free_data_contents)(self.raw, &raw mut made);
            Ok(bytes)
        }
    }
}

#[cfg(test)]
impl KerberosContext {
    /// Creates a context with a configuration file instead of that of the system, and a clock that shows
    /// this time.
    pub(in crate::krb5) fn of_test(path: &std::path::Path, seconds: i32) -> Self {
        use super::functions::test_symbol as symbol;
        use std::ffi::{CString, c_char, c_long};
        use std::os::unix::ffi::OsStrExt;
        let library = functions().unwrap_or_else(|error| panic!("{error}"));
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let (mut profile, mut raw): (Raw, Raw) = (null_mut(), null_mut());
        // SAFETY: The symbols are functions with these signatures. The profile stays allocated, because
        // a test makes few of them.
        unsafe {
            let init_path: unsafe extern "C" fn(*const c_char, *mut Raw) -> c_long =
                std::mem::transmute(symbol(c"profile_init_path"));
            let init_context: unsafe extern "C" fn(Raw, i32, *mut Raw) -> i32 =
                std::mem::transmute(symbol(c"krb5_init_context_profile"));
            let set_time: unsafe extern "C" fn(Raw, i32, i32) -> i32 =
                std::mem::transmute(symbol(c"krb5_set_debugging_time"));
            assert_eq!(init_path(path.as_ptr(), &raw mut profile), 0);
            assert_eq!(init_context(profile, 0, &raw mut raw), 0);
            assert_eq!(set_time(raw, seconds, 0), 0);
        }
        Self { library, raw, generation: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_text_of_the_library() {
        let context = KerberosContext::new().unwrap();
        let error = context.full_name("a/b@").and_then(|_| context.full_name("a@b@c")).unwrap_err();
        assert!(error.code != 0 && !error.text.is_empty(), "{error:?}");
        assert_eq!(context.full_name("a\0b").unwrap_err().code, 0);
        assert_eq!(context.full_name("xrootd/h.o@R").unwrap(), "xrootd/h.o@R");
    }
}
