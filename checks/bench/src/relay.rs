//! A relay with a rate limit for each connection, because the loopback interface has none.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

use storage::faulty::Pace;

/// Size of the copy buffer in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Relays connections to the server at `port` of this machine, and returns the port for clients.
/// Data from the server is limited to the rate, separately for each connection.
pub(crate) fn start(port: u16, bytes_per_second: u64) -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let own = listener.local_addr()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // If the server has ended, the client's connection is closed.
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            let (Ok(to_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { continue };
            client.set_nodelay(true).ok();
            server.set_nodelay(true).ok();
            thread::spawn(move || pass(client, to_server, None));
            thread::spawn(move || pass(server, to_client, Some(Pace::new(bytes_per_second))));
        }
    });
    Ok(own)
}

fn pass(mut from: TcpStream, mut to: TcpStream, pace: Option<Pace>) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if let Some(pace) = &pace {
            pace.keep(count);
        }
        if to.write_all(piece.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // The connection may be closed already.
        end.shutdown(Shutdown::Both).ok();
    }
}
