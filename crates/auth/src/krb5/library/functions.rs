//! The functions and layouts of the library, and its loading.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;

use super::error::{KerberosError, LibraryFault};

/// The name of the library.
pub(super) const LIBRARY: &CStr = c"libkrb5.so.3";

/// A pointer to an object of the library.
pub(super) type Raw = *mut c_void;

/// `krb5_data`.
#[repr(C)]
pub(super) struct KrbData {
    pub(super) magic: i32,
    pub(super) length: c_uint,
    pub(super) data: *mut c_char,
}

/// `krb5_address`.
#[repr(C)]
pub(super) struct KrbAddress {
    pub(super) magic: i32,
    pub(super) kind: i32,
    pub(super) length: c_uint,
    pub(super) contents: *mut u8,
}

/// `krb5_creds`.
#[repr(C)]
pub(super) struct KrbCreds {
    pub(super) magic: i32,
    pub(super) client: Raw,
    pub(super) server: Raw,
    pub(super) key_magic: i32,
    pub(super) key_type: i32,
    pub(super) key_length: c_uint,
    pub(super) key: *mut u8,
    /// Times of the authentication, start, end and last renewal, as unsigned seconds since 1970.
    pub(super) times: [u32; 4],
    pub(super) is_session_key: c_uint,
    pub(super) flags: i32,
    pub(super) addresses: Raw,
    pub(super) ticket: KrbData,
    pub(super) second_ticket: KrbData,
    pub(super) authorization: Raw,
}

/// `krb5_ticket`.
#[repr(C)]
pub(super) struct KrbTicket {
    pub(super) magic: i32,
    pub(super) server: Raw,
    pub(super) encryption_magic: i32,
    pub(super) encryption_type: i32,
    pub(super) key_version: c_uint,
    pub(super) encrypted: KrbData,
    pub(super) decrypted: *mut KrbTicketPart,
}

/// The first fields of `krb5_enc_tkt_part`, the decrypted part of a ticket.
#[repr(C)]
pub(super) struct KrbTicketPart {
    pub(super) magic: i32,
    pub(super) flags: i32,
    pub(super) session_key: Raw,
    pub(super) client: Raw,
    pub(super) transited_magic: i32,
    pub(super) transited_type: u8,
    pub(super) transited: KrbData,
    /// As in [`KrbCreds`].
    pub(super) times: [u32; 4],
}

/// `krb5_keytab_entry`. Only the library reads and writes it.
#[repr(C)]
pub(super) struct KrbKeytabEntry {
    pub(super) magic: i32,
    pub(super) principal: Raw,
    pub(super) timestamp: i32,
    pub(super) version: c_uint,
    pub(super) key_magic: i32,
    pub(super) key_type: i32,
    pub(super) key_length: c_uint,
    pub(super) key: *mut u8,
}

const _: () = assert!(size_of::<usize>() != 8 || size_of::<KrbCreds>() == 120);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<KrbKeytabEntry>() == 48);
const _: () = assert!(size_of::<usize>() != 8 || size_of::<KrbTicket>() == 56);
const _: () = assert!(size_of::<usize>() != 8 || std::mem::offset_of!(KrbTicketPart, times) == 48);

/// Declares the functions of the library that are used, and their look-up by name.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// Functions of the library, named without `krb5_`.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Finds all functions. `find` returns the address of a symbol.
            fn resolve(find: impl Fn(&str) -> Result<NonNull<c_void>, String>) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let address = find(concat!("krb5_", stringify!($name)))?.as_ptr();
                        // SAFETY: The symbol is a function of the library with this signature, which is
                        // part of its stable interface.
                        unsafe {
                            std::mem::transmute::<Raw, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                address,
                            )
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    init_context: fn(*mut Raw) -> i32,
    free_context: fn(Raw),
    get_error_message: fn(Raw, i32) -> *const c_char,
    free_error_message: fn(Raw, *const c_char),
    parse_name: fn(Raw, *const c_char, *mut Raw) -> i32,
    unparse_name: fn(Raw, Raw, *mut *mut c_char) -> i32,
    free_unparsed_name: fn(Raw, *mut c_char),
    free_principal: fn(Raw, Raw),
    principal_compare: fn(Raw, Raw, Raw) -> c_uint,
    aname_to_localname: fn(Raw, Raw, c_int, *mut c_char) -> i32,
    kt_resolve: fn(Raw, *const c_char, *mut Raw) -> i32,
    kt_default: fn(Raw, *mut Raw) -> i32,
    kt_get_name: fn(Raw, Raw, *mut c_char, c_uint) -> i32,
    kt_close: fn(Raw, Raw) -> i32,
    kt_start_seq_get: fn(Raw, Raw, *mut Raw) -> i32,
    kt_next_entry: fn(Raw, Raw, *mut KrbKeytabEntry, *mut Raw) -> i32,
    kt_end_seq_get: fn(Raw, Raw, *mut Raw) -> i32,
    kt_add_entry: fn(Raw, Raw, *mut KrbKeytabEntry) -> i32,
    kt_get_entry: fn(Raw, Raw, Raw, c_uint, i32, *mut KrbKeytabEntry) -> i32,
    free_keytab_entry_contents: fn(Raw, *mut KrbKeytabEntry) -> i32,
    cc_resolve: fn(Raw, *const c_char, *mut Raw) -> i32,
    cc_default: fn(Raw, *mut Raw) -> i32,
    cc_close: fn(Raw, Raw) -> i32,
    cc_get_full_name: fn(Raw, Raw, *mut *mut c_char) -> i32,
    free_string: fn(Raw, *mut c_char),
    cc_get_principal: fn(Raw, Raw, *mut Raw) -> i32,
    cc_initialize: fn(Raw, Raw, Raw) -> i32,
    cc_store_cred: fn(Raw, Raw, *mut KrbCreds) -> i32,
    cc_retrieve_cred: fn(Raw, Raw, i32, *mut KrbCreds, *mut KrbCreds) -> i32,
    free_cred_contents: fn(Raw, *mut KrbCreds),
    get_credentials: fn(Raw, i32, Raw, *mut KrbCreds, *mut *mut KrbCreds) -> i32,
    free_creds: fn(Raw, *mut KrbCreds),
    auth_con_init: fn(Raw, *mut Raw) -> i32,
    auth_con_free: fn(Raw, Raw) -> i32,
    auth_con_setaddrs: fn(Raw, Raw, *mut KrbAddress, *mut KrbAddress) -> i32,
    rd_req: fn(Raw, *mut Raw, *const KrbData, Raw, Raw, *mut i32, *mut *mut KrbTicket) -> i32,
    free_ticket: fn(Raw, *mut KrbTicket),
    rd_cred: fn(Raw, Raw, *mut KrbData, *mut *mut *mut KrbCreds, Raw) -> i32,
    free_tgt_creds: fn(Raw, *mut *mut KrbCreds),
    mk_req_extended: fn(Raw, *mut Raw, i32, *mut KrbData, *mut KrbCreds, *mut KrbData) -> i32,
    fwd_tgt_creds: fn(Raw, Raw, *const c_char, Raw, Raw, Raw, c_int, *mut KrbData) -> i32,
    free_data_contents: fn(Raw, *mut KrbData),
}

/// Opens a library and finds the functions. The library stays open until the process ends.
fn open(name: &CStr) -> Result<Functions, LibraryFault> {
    let shown = name.to_string_lossy();
    // SAFETY: The name ends with a NUL. The library is that of the system, whose initialization is
    // trusted like that of linked libraries.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        let reason = format!("the Kerberos library {shown} cannot be opened: {}", loader_error());
        return Err(LibraryFault::missing(reason));
    }
    let functions = Functions::resolve(|symbol| {
        let text = CString::new(symbol).unwrap_or_default();
        // SAFETY: The handle is that of an open library, and the name ends with a NUL.
        let address = unsafe { libc::dlsym(handle, text.as_ptr()) };
        NonNull::new(address)
            .ok_or_else(|| format!("the Kerberos library {shown} is too old: it has no function {symbol}"))
    });
    functions.map_err(LibraryFault::missing)
}

fn loader_error() -> String {
    // SAFETY: The function has no arguments; its text is valid until the next call of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".to_owned();
    }
    // SAFETY: The text is not null and ends with a NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

pub(super) fn functions() -> Result<&'static Functions, LibraryFault> {
    static FUNCTIONS: OnceLock<Result<Functions, LibraryFault>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| open(LIBRARY)).as_ref().map_err(Clone::clone)
}

/// Returns the address of a function that only tests use.
#[cfg(test)]
pub(super) fn test_symbol(name: &CStr) -> Raw {
    // SAFETY: The library is open already, and the names end with a NUL.
    let address = unsafe { libc::dlsym(libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW), name.as_ptr()) };
    assert!(!address.is_null(), "{name:?}");
    address
}

impl KrbData {
    pub(super) fn empty() -> Self {
        Self { magic: 0, length: 0, data: null_mut() }
    }

    /// Refers to bytes, which must not move while the value is used.
    pub(super) fn of(bytes: &mut [u8]) -> Result<Self, KerberosError> {
        let length = c_uint::try_from(bytes.len()).map_err(|_| KerberosError::new("it is too long"))?;
        Ok(Self { magic: 0, length, data: bytes.as_mut_ptr().cast() })
    }
}

impl KrbKeytabEntry {
    /// Returns an entry to be filled by the library.
    pub(super) fn empty() -> Self {
        Self {
            magic: 0,
            principal: null_mut(),
            timestamp: 0,
            version: 0,
            key_magic: 0,
            key_type: 0,
            key_length: 0,
            key: null_mut(),
        }
    }
}

impl KrbCreds {
    /// Returns credentials that select a ticket. The principals still belong to the caller.
    pub(super) fn between(client: Raw, server: Raw) -> Self {
        Self {
            magic: 0,
            client,
            server,
            key_magic: 0,
            key_type: 0,
            key_length: 0,
            key: null_mut(),
            times: [0; 4],
            is_session_key: 0,
            flags: 0,
            addresses: null_mut(),
            ticket: KrbData::empty(),
            second_ticket: KrbData::empty(),
            authorization: null_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named() {
        let Err(error) = open(c"libkrb5-missing.so.3") else { panic!("it is there") };
        let text = error.to_string();
        assert!(text.starts_with("the Kerberos library libkrb5-missing.so.3 cannot be opened: "), "{text}");
        assert!(text.ends_with("; install the package libkrb5-3 (Debian) or krb5-libs (Red Hat)"), "{text}");
    }

    #[test]
    fn a_library_without_the_functions_is_too_old() {
        let Err(error) = open(c"libc.so.6") else { panic!("it has them") };
        assert!(
            error.reason.ends_with("libc.so.6 is too old: it has no function krb5_init_context"),
            "{error}"
        );
    }
}
