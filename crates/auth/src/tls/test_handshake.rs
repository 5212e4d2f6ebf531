//! Handshakes in memory, for tests.

use rustls::{ClientConnection, Error, ServerConnection};

/// Exchanges records until both ends have ended the handshake, or one of them fails.
pub(super) fn shake_hands(client: &mut ClientConnection, server: &mut ServerConnection) -> Result<(), Error> {
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            server.read_tls(&mut left).unwrap();
            server.process_new_packets()?;
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            client.read_tls(&mut left).unwrap();
            client.process_new_packets()?;
        }
    }
    Ok(())
}
