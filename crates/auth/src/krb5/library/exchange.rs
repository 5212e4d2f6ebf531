//! The state of one exchange: messages that are made and verified with the library.

use std::ffi::c_uint;
use std::net::IpAddr;
use std::ptr::null_mut;

use super::context::{KerberosContext, Owned};
use super::error::{KerberosError, text};
use super::functions::{Functions, KrbAddress, KrbCreds, KrbData, KrbTicket, Raw};

/// Option of an AP-REQ that XRootD's clients set. The ticket is an ordinary one nevertheless.
const USE_SESSION_KEY: i32 = 0x4000_0000;
/// Address types.
const INET: i32 = 2;
const INET6: i32 = 24;

/// A ticket of a client that was verified.
#[derive(PartialEq, Eq, Debug)]
pub(in crate::krb5) struct AcceptedTicket {
    /// The principal of the client.
    pub(in crate::krb5) client: String,
    /// The end of its validity in seconds since 1970.
    pub(in crate::krb5) end: u32,
}

/// The state of one exchange, on either side: a context, and the session key in it.
pub(in crate::krb5) struct KerberosExchange {
    // Released before its context, because of the order of the fields.
    state: ExchangeState,
    context: KerberosContext,
}

/// The state in the library, with the context that made it.
struct ExchangeState {
    library: &'static Functions,
    context: Raw,
    raw: Raw,
}

// SAFETY: The state may be used by any thread, by one at a time, like its context.
unsafe impl Send for ExchangeState {}

impl Drop for ExchangeState {
    fn drop(&mut self) {
        // SAFETY: The state was made by this context, which the exchange keeps until the state is released.
        // The key is wiped.
        unsafe { (self.library.auth_con_free)(self.context, self.raw) };
    }
}

impl KerberosExchange {
    /// Begins an exchange. Times are checked, and messages are remembered (replay cache).
    pub(in crate::krb5) fn new(context: KerberosContext) -> Result<Self, KerberosError> {
        let mut raw = null_mut();
        // SAFETY: The context is valid, and the pointer is valid for the result.
        context.check(unsafe { (context.library.auth_con_init)(context.raw, &raw mut raw) })?;
        let state = ExchangeState { library: context.library, context: context.raw, raw };
        Ok(Self { state, context })
    }

    /// Ends the exchange, and returns its context for another one.
    pub(in crate::krb5) fn into_context(self) -> KerberosContext {
        let Self { state, context } = self;
        drop(state);
        context
    }

    pub(in crate::krb5) fn context(&self) -> &KerberosContext {
        &self.context
    }

    /// Restricts the exchange to tickets without addresses, and to those for this address.
    pub(in crate::krb5) fn restrict_to(&mut self, peer: IpAddr) -> Result<(), KerberosError> {
        let (kind, mut bytes) = match peer.to_canonical() {
            IpAddr::V4(address) => (INET, address.octets().to_vec()),
            IpAddr::V6(address) => (INET6, address.octets().to_vec()),
        };
        let length = c_uint::try_from(bytes.len()).unwrap_or(0);
        let mut address = KrbAddress { magic: 0, kind, length, contents: bytes.as_mut_ptr() };
        // SAFETY: The address is valid, and the library copies it.
        let code = unsafe {
            (self.context.library.auth_con_setaddrs)(
                self.context.raw,
                self.state.raw,
                null_mut(),
                &raw mut address,
            )
        };
        self.context.check(code)
    }

    /// Verifies an AP-REQ with the key of a service. Blocks.
    pub(in crate::krb5) fn accept(
        &mut self,
        request: &[u8],
        service: &str,
        keytab: Option<&str>,
    ) -> Result<AcceptedTicket, KerberosError> {
        let context = &self.context;
        let (service, keytab) = (context.principal(service)?, context.keytab(keytab)?);
        let mut copy = request.to_vec();
        let (message, mut ticket) = (KrbData::of(&mut copy)?, null_mut());
        // The name of the service in a ticket is not protected; its key is what counts, and only keys of
        // this service are tried.
        // SAFETY: All objects belong to this context, and the last pointer is valid for the result. The
        // state exists, so the library does not replace it. Null means that options are not wanted.
        let code = unsafe {
            (context.library.rd_req)(
                context.raw,
                &raw mut self.state.raw,
                &raw const message,
                service.raw,
                keytab.raw,
                null_mut(),
                &raw mut ticket,
            )
        };
        context.check(code)?;
        let accepted = self.accepted(ticket);
        // SAFETY: The function succeeded, so the ticket is valid. It is released once.
        unsafe { (context.library.free_ticket)(context.raw, ticket) };
        accepted
    }

    /// Returns the client and the end of a ticket that was verified.
    fn accepted(&self, ticket: *const KrbTicket) -> Result<AcceptedTicket, KerberosError> {
        // SAFETY: A ticket that is not null is valid, and so is its decrypted part.
        let part = unsafe { ticket.as_ref().and_then(|ticket| ticket.decrypted.as_ref()) };
        let part = part.ok_or_else(|| KerberosError::new("the library returned no ticket"))?;
        let [_, _, end, _] = part.times;
        Ok(AcceptedTicket { client: self.context.name_of(part.client)?, end })
    }

    /// Stores the ticket of a KRB-CRED in a new cache. It must be the ticket-granting ticket of the
    /// client. Blocks.
    pub(in crate::krb5) fn store_forwarded(
        &mut self,
        message: &[u8],
        client: &str,
        cache: &str,
    ) -> Result<(), KerberosError> {
        let context = &self.context;
        let client = context.principal(client)?;
        let mut copy = message.to_vec();
        let (mut message, mut list) = (KrbData::of(&mut copy)?, null_mut());
        // SAFETY: The state and the message are valid, and the pointer is valid for the result. Null means
        // that the times of the message are not wanted.
        let code = unsafe {
            (context.library.rd_cred)(
                context.raw,
                self.state.raw,
                &raw mut message,
                &raw mut list,
                null_mut(),
            )
        };
        context.check(code)?;
        let stored = self.store_first(list, &client, cache);
        // SAFETY: The function succeeded, so the list is valid. It is released once.
        unsafe { (context.library.free_tgt_creds)(context.raw, list) };
        stored
    }

    /// Stores the first ticket of a list that ends with a null pointer.
    fn store_first(
        &self,
        list: *mut *mut KrbCreds,
        client: &Owned<'_>,
        cache: &str,
    ) -> Result<(), KerberosError> {
        let context = &self.context;
        // SAFETY: The list has at least the null pointer at its end, unless it is null itself.
        let first = if list.is_null() { null_mut() } else { unsafe { *list } };
        if first.is_null() {
            return Err(KerberosError::new("the client forwarded no ticket"));
        }
        // SAFETY: The ticket is valid while the list is.
        let (owner, service) = unsafe { ((*first).client, (*first).server) };
        let is_same = |one: Raw, other: &Owned<'_>| {
            // SAFETY: Both are principals of the library; a missing one is not compared.
            !one.is_null() && unsafe { (context.library.principal_compare)(context.raw, one, other.raw) } != 0
        };
        if !is_same(owner, client) {
            return Err(KerberosError::new("the forwarded ticket is that of another client"));
        }
        if !is_same(service, &context.granting_service(&context.name_of(client.raw)?)?) {
            return Err(KerberosError::new("the forwarded ticket is not a ticket-granting ticket"));
        }
        let cache = context.cache(Some(cache))?;
        // SAFETY: All objects belong to this context.
        unsafe {
            context.check((context.library.cc_initialize)(context.raw, cache.raw, client.raw))?;
            context.check((context.library.cc_store_cred)(context.raw, cache.raw, first))
        }
    }

    /// Makes the AP-REQ for a service with the tickets of a cache. It can ask a KDC, so it blocks.
    pub(in crate::krb5) fn request(
        &mut self,
        cache: Option<&str>,
        service: &str,
    ) -> Result<Vec<u8>, KerberosError> {
        let context = &self.context;
        let (cache, service) = (context.cache(cache)?, context.principal(service)?);
        let client = context.owner(&cache)?;
        let mut wanted = KrbCreds::between(client.raw, service.raw);
        let mut ticket = null_mut();
        // SAFETY: All objects belong to this context, and the pointer is valid for the result.
        let code = unsafe {
            (context.library.get_credentials)(context.raw, 0, cache.raw, &raw mut wanted, &raw mut ticket)
        };
        context.check(code)?;
        let mut made = KrbData::empty();
        // SAFETY: The function succeeded, so the ticket is valid; it is released once. The state exists,
        // so the library does not replace it. Null means that no data is covered by a checksum.
        let code = unsafe {
            let code = (context.library.mk_req_extended)(
                context.raw,
                &raw mut self.state.raw,
                USE_SESSION_KEY,
                null_mut(),
                ticket,
                &raw mut made,
            );
            (context.library.free_creds)(context.raw, ticket);
            code
        };
        context.message(code, made)
    }

    /// Makes the KRB-CRED with the forwarded ticket, after the AP-REQ. It asks a KDC, so it blocks.
    pub(in crate::krb5) fn forward(
        &mut self,
        cache: Option<&str>,
        service: &str,
        host: &str,
    ) -> Result<Vec<u8>, KerberosError> {
        let context = &self.context;
        let (cache, service, host) = (context.cache(cache)?, context.principal(service)?, text(host)?);
        let client = context.owner(&cache)?;
        let mut made = KrbData::empty();
        // SAFETY: All objects belong to this context, and the host ends with a NUL.
        let code = unsafe {
            (context.library.fwd_tgt_creds)(
                context.raw,
                self.state.raw,
                host.as_ptr(),
                client.raw,
                service.raw,
                cache.raw,
                1,
                &raw mut made,
            )
        };
        context.message(code, made)
    }
}

#[cfg(test)]
impl KerberosExchange {
    /// Makes the KRB-CRED with the ticket for a service, which no client of this crate forwards.
    pub(in crate::krb5) fn forward_service_ticket(
        &mut self,
        cache: &str,
        service: &str,
    ) -> Result<Vec<u8>, KerberosError> {
        use super::functions::test_symbol;
        type MakeCredentials =
            unsafe extern "C" fn(Raw, Raw, *mut KrbCreds, *mut *mut KrbData, *mut std::ffi::c_void) -> i32;
        let context = &self.context;
        let (cache, service) = (context.cache(Some(cache))?, context.principal(service)?);
        let client = context.owner(&cache)?;
        let mut wanted = KrbCreds::between(client.raw, service.raw);
        let (mut ticket, mut made) = (null_mut(), null_mut());
        // SAFETY: All objects belong to this context, the pointers are valid for the results, and the
        // symbol is a function with this signature. The message stays allocated in its frame, because a
        // test makes few of them.
        unsafe {
            let make: MakeCredentials = std::mem::transmute(test_symbol(c"krb5_mk_1cred"));
            let code = (context.library.get_credentials)(
                context.raw,
                0,
                cache.raw,
                &raw mut wanted,
                &raw mut ticket,
            );
            context.check(code)?;
            let code = make(context.raw, self.state.raw, ticket, &raw mut made, null_mut());
            (context.library.free_creds)(context.raw, ticket);
            context.check(code)?;
            context.message(code, std::ptr::read(made))
        }
    }
}
