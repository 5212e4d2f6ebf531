//! Tests of batching on loops with and without io_uring, because both must deliver the same bytes.

use crate::{Loops, Socket, enable_batching, spawn_local, take_medium};
use std::future::poll_fn;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

/// Starts a loop that waits in this way, with or without io_uring.
fn a_loop(own: bool, together: bool) -> Loops {
    let loops = Loops::start_waiting(1, own, &base::Supervisor::default()).unwrap();
    let (tell, told) = mpsc::channel();
    loops.handles()[0].run(move || tell.send(if together { enable_batching() } else { Ok(()) }).unwrap());
    told.recv().unwrap().unwrap();
    loops
}

/// Returns both ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    (client, server)
}

/// Blocks a loop until the result is used, so that many connections become ready at once.
fn hold(loops: &Loops) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    loops.handles()[0].run(move || {
        tell.send(()).unwrap();
        held.recv().unwrap_or_default();
    });
    told.recv().unwrap();
    release
}

/// Echoes received data, batched where possible, and counts the batched sends.
struct Echo {
    socket: Socket,
    waits: Vec<u8>,
    sent: usize,
    together: Arc<AtomicUsize>,
}

impl Echo {
    fn turn(&mut self, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        loop {
            if let Some((mut buffer, sent)) = self.socket.returned() {
                assert_eq!(self.sent, 0, "no byte may be sent before a returned buffer");
                buffer.append(&mut self.waits);
                (self.waits, self.sent) = (buffer, sent);
            }
            if self.sent == 0 && !self.waits.is_empty() {
                match self.socket.send_together(std::mem::take(&mut self.waits)) {
                    Ok(()) => drop(self.together.fetch_add(1, Ordering::Relaxed)),
                    Err(waits) => self.waits = waits,
                }
            }
            if self.sent < self.waits.len() {
                match self.socket.write(&[IoSlice::new(&self.waits[self.sent..])], false) {
                    Ok(sent) => self.sent += sent,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                        if self.socket.poll_writable(context).is_pending() {
                            return Poll::Pending;
                        }
                    }
                    Err(error) => return Poll::Ready(Err(error)),
                }
                continue;
            }
            self.sent = 0;
            self.waits.clear();
            if self.waits.capacity() == 0 {
                self.waits = take_medium();
            }
            match self.socket.poll_read(context, &mut self.waits, usize::MAX) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn echo(loops: &Loops, server: TcpStream, together: &Arc<AtomicUsize>) {
    let together = together.clone();
    loops.handles()[0].run(move || {
        let socket = Socket::adopt(server).unwrap();
        let mut echo = Echo { socket, waits: Vec::new(), sent: 0, together };
        spawn_local(async move {
            // The way a client ends does not matter.
            let _ = poll_fn(|context| echo.turn(context)).await;
        });
    });
}

fn content(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31 + (i >> 8) * 7 + seed * 101) % 251) as u8).collect()
}

#[test]
fn each_byte_is_echoed_in_order_on_each_kind_of_loop() {
    for (own, together) in [(true, true), (true, false), (false, true), (false, false)] {
        let loops = a_loop(own, together);
        let count = Arc::default();
        let clients: Vec<TcpStream> = (0..40)
            .map(|_| {
                let (client, server) = pair();
                echo(&loops, server, &count);
                client
            })
            .collect();
        for round in 0..30 {
            // From one byte to more than a place, and more than the socket buffers hold.
            let lengths = [1, 24, 2000, 8 * 1024, 8 * 1024 + 1, 70_000, 3_000_000];
            let hold = hold(&loops);
            let running: Vec<_> = clients
                .iter()
                .enumerate()
                .map(|(index, client)| {
                    let most = if index % 8 == 0 { 7 } else { 5 };
                    let data = content(index + round, lengths[(index + round) % most]);
                    let mut client = client.try_clone().unwrap();
                    std::thread::spawn(move || {
                        let mut writer = client.try_clone().unwrap();
                        let expected = data.clone();
                        let writing = std::thread::spawn(move || writer.write_all(&data).unwrap());
                        let mut came = vec![0; expected.len()];
                        client.read_exact(&mut came).unwrap();
                        assert!(came == expected);
                        writing.join().unwrap();
                    })
                })
                .collect();
            drop(hold);
            running.into_iter().for_each(|one| one.join().unwrap());
        }
        assert_eq!(count.load(Ordering::Relaxed) > 0, together);
        loops.stop();
    }
}

#[test]
fn unsent_bytes_are_taken_back_and_sent_later() {
    let loops = a_loop(true, true);
    let mut clients = Vec::new();
    let hold = hold(&loops);
    for index in 0..8 {
        let (client, server) = pair();
        socket2::SockRef::from(&server).set_send_buffer_size(32 * 1024).unwrap();
        socket2::SockRef::from(&client).set_recv_buffer_size(32 * 1024).unwrap();
        clients.push(client);
        loops.handles()[0].run(move || {
            let socket = Socket::adopt(server).unwrap();
            let mut all = content(index, 600_000);
            let mut echo = Echo { socket, waits: Vec::new(), sent: 0, together: Arc::default() };
            spawn_local(poll_fn(move |context| {
                if !all.is_empty() {
                    // Wakes itself, so that the round has further tasks.
                    echo.waits = std::mem::take(&mut all);
                }
                echo.turn(context).map(drop)
            }));
        });
    }
    drop(hold);
    for (index, client) in clients.iter_mut().enumerate() {
        let mut came = vec![0; 600_000];
        client.read_exact(&mut came).unwrap();
        assert!(came == content(index, 600_000));
    }
    loops.stop();
}

#[test]
fn fetched_data_is_kept_until_it_is_read() {
    let loops = a_loop(true, true);
    let (tell, told) = mpsc::channel();
    let (wait, waits) = mpsc::channel();
    let clients: Vec<_> = (0..8)
        .map(|index: usize| {
            let (client, server) = pair();
            let (tell, wait) = (tell.clone(), wait.clone());
            loops.handles()[0].run(move || {
                let mut socket = Some(Socket::adopt(server).unwrap());
                let mut first = Vec::with_capacity(1);
                spawn_local(poll_fn(move |context| {
                    let Some(here) = &mut socket else { return Poll::Ready(()) };
                    if first.len() < 3 {
                        first.reserve_exact(1);
                        // One byte per turn: the rest must be kept.
                        match here.poll_read(context, &mut first, 1) {
                            Poll::Ready(Ok(1)) => {
                                context.waker().wake_by_ref();
                                return Poll::Pending;
                            }
                            Poll::Ready(other) => panic!("{other:?}"),
                            Poll::Pending => {
                                wait.send(()).unwrap();
                                return Poll::Pending;
                            }
                        }
                    }
                    let (socket, rest) = socket.take().unwrap().release().unwrap();
                    let stream = socket.into_plain().unwrap();
                    tell.send((index, stream, [first.as_slice(), &rest].concat())).unwrap();
                    Poll::Ready(())
                }));
            });
            client
        })
        .collect();
    for _ in 0..8 {
        waits.recv().unwrap();
    }
    let hold = hold(&loops);
    for (index, client) in clients.iter().enumerate() {
        (&*client).write_all(&content(index, 9000)).unwrap();
    }
    drop(hold);
    for _ in 0..8 {
        let (index, mut stream, mut came) = told.recv().unwrap();
        assert!(came.len() > 3, "nothing was fetched before it was asked for");
        stream.set_nonblocking(false).unwrap();
        let mut rest = vec![0; 9000 - came.len()];
        stream.read_exact(&mut rest).unwrap();
        came.extend(rest);
        assert!(came == content(index, 9000));
    }
    loops.stop();
}

#[test]
fn batched_sends_complete_before_their_socket_closes() {
    let loops = a_loop(true, true);
    let hold = hold(&loops);
    let (tell, told) = mpsc::channel();
    let clients: Vec<_> = (0..8)
        .map(|index| {
            let (client, server) = pair();
            let tell = tell.clone();
            loops.handles()[0].run(move || {
                let mut socket = Socket::adopt(server).unwrap();
                spawn_local(async move {
                    let mut buffer = take_medium();
                    buffer.extend(content(index, 5000));
                    tell.send(socket.send_together(buffer).is_ok()).unwrap();
                    match index % 3 {
                        0 => drop(socket),
                        1 => drop(socket.release().unwrap()),
                        _ => socket.finish_sending(),
                    }
                });
            });
            client
        })
        .collect();
    drop(hold);
    for (index, mut client) in clients.into_iter().enumerate() {
        let mut came = Vec::new();
        client.read_to_end(&mut came).unwrap();
        assert!(came == content(index, 5000));
    }
    assert!(told.iter().take(8).all(|gathered| gathered));
    loops.stop();
}

#[test]
fn the_end_of_a_peer_is_seen_after_its_last_bytes() {
    for together in [true, false] {
        let loops = a_loop(true, together);
        let count = Arc::default();
        let hold = hold(&loops);
        let mut clients = Vec::new();
        for index in 0..8 {
            let (mut client, server) = pair();
            echo(&loops, server, &count);
            client.write_all(&content(index, 100)).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            clients.push(client);
        }
        drop(hold);
        for (index, mut client) in clients.into_iter().enumerate() {
            let mut came = Vec::new();
            client.read_to_end(&mut came).unwrap();
            assert!(came == content(index, 100));
        }
        loops.stop();
    }
}

/// Resets the connection, as the kernel does for a killed process with unread data.
fn reset(client: TcpStream) {
    socket2::SockRef::from(&client).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
}

#[test]
fn sends_that_fail_within_a_round_wake_their_tasks_and_the_loop_continues() {
    const CONNECTIONS: usize = 3 * super::BATCH_MAX;
    for (own, together) in [(true, true), (false, true), (true, false)] {
        let loops = a_loop(own, together);
        let (tell, told) = mpsc::channel();
        let (wait, waits) = mpsc::channel();
        let (go, _) = tokio::sync::broadcast::channel::<()>(1);
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let (client, server) = pair();
                let (tell, wait, mut gone) = (tell.clone(), wait.clone(), go.subscribe());
                loops.handles()[0].run(move || {
                    let mut socket = Socket::adopt(server).unwrap();
                    spawn_local(async move {
                        let mut came = Vec::with_capacity(1);
                        // Waits for the peer, so that the reactor knows this task, and for the
                        // command to send.
                        poll_fn(|context| {
                            let read = socket.poll_read(context, &mut came, 1);
                            assert!(read.is_pending(), "the peer has sent nothing and is there");
                            Poll::Ready(())
                        })
                        .await;
                        wait.send(()).unwrap();
                        gone.recv().await.unwrap();
                        let mut buffer = take_medium();
                        buffer.extend(content(1, 100));
                        let is_gathered = socket.send_together(buffer).is_ok();
                        assert_eq!(is_gathered, together);
                        // The task sees the end as an error or as the end of the stream.
                        let end = poll_fn(|context| socket.poll_read(context, &mut came, 1)).await;
                        tell.send(end.is_err() || end.is_ok_and(|bytes| bytes == 0)).unwrap();
                    });
                });
                client
            })
            .collect();
        // A loop drops its own tasks when it ends.
        drop((tell, wait));
        waits.iter().take(CONNECTIONS).for_each(drop);
        let hold = hold(&loops);
        clients.into_iter().for_each(reset);
        go.send(()).unwrap();
        drop(hold);
        assert_eq!(told.iter().filter(|ended| *ended).count(), CONNECTIONS);
        let (answer, answers) = mpsc::channel();
        loops.handles()[0].run(move || answer.send(()).unwrap());
        answers.recv().expect("the loop runs on");
        loops.stop();
    }
}
