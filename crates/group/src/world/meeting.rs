//! How processes find each other: all report to the first where they listen, and it sends all of that to each.
//!
//! A connection begins with a line, `elinvar VERSION RANK WORLD_SIZE PORT`; the first process answers `yes ADDRESS…`, of processes 1, 2, …, or `no REASON`.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use elinvar_core::{Error, Result};

use super::Place;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Between attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// For a line of a process that is there.
const ANSWER: Duration = Duration::from_secs(10);
const LONGEST_LINE: usize = 1 << 16;

/// A process that has come.
struct Guest {
    stream: TcpStream,
    rank: usize,
    port: u16,
}

/// The connections with all other processes, in their order, none at its own place.
pub(super) fn meet(place: &Place) -> Result<Vec<Option<TcpStream>>> {
    let deadline = Instant::now() + place.patience;
    let mut streams: Vec<Option<TcpStream>> = (0..place.world_size).map(|_| None).collect();
    if place.rank == 0 {
        host(place, deadline, &mut streams)?;
    } else {
        visit(place, deadline, &mut streams)?;
    }
    Ok(streams)
}

/// What the first process does.
fn host(place: &Place, deadline: Instant, streams: &mut [Option<TcpStream>]) -> Result<()> {
    let listener = listen(place)?;
    let mut ports = vec![0; place.world_size];
    let refused = gather(&listener, place, 1, deadline, &mut |guest| {
        ports[guest.rank] = guest.port;
        streams[guest.rank] = Some(guest.stream);
        Ok(())
    });
    // What one does wrong ends the job for all.
    let answer = match &refused {
        Ok(()) => {
            let addresses = streams.iter().zip(&ports).filter_map(|(stream, port)| {
                let stream = stream.as_ref()?;
                Some(stream.peer_addr().map(|address| SocketAddr::new(address.ip(), *port).to_string()))
            });
            addresses.collect::<io::Result<Vec<_>>>().map(|addresses| format!("yes {}", addresses.join(" "))).map_err(|e| lost(&e))?
        }
        Err(error) => format!("no {error}"),
    };
    for stream in streams.iter_mut().flatten() {
        let sent = send_line(stream, &answer);
        if refused.is_ok() {
            sent.map_err(|e| lost(&e))?;
        }
    }
    refused
}

/// What the others do.
fn visit(place: &Place, deadline: Instant, streams: &mut [Option<TcpStream>]) -> Result<()> {
    let mut first = reach(place, deadline)?;
    let here = first.local_addr().map_err(|e| lost(&e))?.ip();
    let listener = TcpListener::bind((here, 0)).map_err(|e| io_error(format!("cannot listen on {here} for the other processes"), e))?;
    let port = listener.local_addr().map_err(|e| lost(&e))?.port();
    send_line(&mut first, &hello(place, port)).map_err(|e| lost(&e))?;
    // The first process answers when all have come.
    let line = read_line(&mut first, deadline + ANSWER).map_err(|e| io_error("process 0 did not answer: its own message says why".into(), e))?;
    let addresses = match line.split_once(' ') {
        Some(("yes", addresses)) => addresses,
        Some(("no", reason)) => return Err(Error::invalid_argument(reason)),
        Some(_) | None => return Err(Error::invalid_data(format!("process 0 answered '{line}': another program listens on {}", shown(place)))),
    };
    streams[0] = Some(first);
    for (rank, address) in (1..place.rank).zip(addresses.split(' ')) {
        let mut stream =
            TcpStream::connect(address).map_err(|e| io_error(format!("process {} does not reach process {rank} at {address}", place.rank), e))?;
        send_line(&mut stream, &hello(place, 0)).map_err(|e| lost(&e))?;
        streams[rank] = Some(stream);
    }
    gather(&listener, place, place.rank + 1, deadline + ANSWER, &mut |guest| {
        streams[guest.rank] = Some(guest.stream);
        Ok(())
    })
}

/// Waits for every process from `first` on.
fn gather(listener: &TcpListener, place: &Place, first: usize, deadline: Instant, come: &mut dyn FnMut(Guest) -> Result<()>) -> Result<()> {
    listener.set_nonblocking(true).map_err(|e| lost(&e))?;
    let mut missing: Vec<usize> = (first..place.world_size).collect();
    while !missing.is_empty() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if Instant::now() > deadline {
                    let (missing, seconds) = (list(&missing), place.patience.as_secs());
                    return Err(Error::device_unavailable(format!(
                        "{missing} of {} did not come within {seconds} s: start all of them, and see that they reach {}",
                        place.world_size,
                        shown(place)
                    )));
                }
                thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(io_error("cannot wait for the other processes".into(), error)),
        };
        // Whatever else looks at the port is left alone.
        let Some(guest) = welcome(stream, place)? else { continue };
        match missing.iter().position(|rank| *rank == guest.rank) {
            Some(found) => missing.remove(found),
            None => return Err(Error::invalid_argument(format!("two processes have RANK={}: give each its own", guest.rank))),
        };
        come(guest)?;
    }
    Ok(())
}

/// A process that came, if it is one.
fn welcome(mut stream: TcpStream, place: &Place) -> Result<Option<Guest>> {
    if stream.set_nonblocking(false).is_err() {
        return Ok(None);
    }
    let Ok(line) = read_line(&mut stream, Instant::now() + ANSWER) else { return Ok(None) };
    let ["elinvar", version, rank, size, port] = line.split(' ').collect::<Vec<_>>()[..] else { return Ok(None) };
    let (Ok(rank), Ok(port)) = (rank.parse::<usize>(), port.parse()) else { return Ok(None) };
    if version != VERSION {
        return Err(Error::invalid_argument(format!(
            "process {rank} runs elinvar {version}, process {} {VERSION}: install one version on all hosts",
            place.rank
        )));
    }
    if size != place.world_size.to_string() {
        return Err(Error::invalid_argument(format!(
            "process {rank} has WORLD_SIZE={size}, process {} WORLD_SIZE={}: give all the same",
            place.rank, place.world_size
        )));
    }
    Ok(Some(Guest { stream, rank, port }))
}

/// Listens where the others look for the first process.
fn listen(place: &Place) -> Result<TcpListener> {
    match TcpListener::bind((&place.address[..], place.port)) {
        // The address that others reach may be one that this host does not have itself.
        Err(error) if error.kind() == ErrorKind::AddrNotAvailable => TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), place.port)),
        bound => bound,
    }
    .map_err(|error| {
        let remedy =
            if error.kind() == ErrorKind::AddrInUse { "set MASTER_PORT to a free port" } else { "set MASTER_ADDR to an address of this host" };
        io_error(format!("process 0 cannot listen on {}: {remedy} for all processes", shown(place)), error)
    })
}

/// A connection with the first process, which may begin later.
fn reach(place: &Place, deadline: Instant) -> Result<TcpStream> {
    let attempt = || {
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in (&place.address[..], place.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, ANSWER) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    loop {
        match attempt() {
            Ok(stream) => return Ok(stream),
            Err(error) if Instant::now() > deadline => {
                let (rank, seconds) = (place.rank, place.patience.as_secs());
                let what = format!(
                    "process {rank} did not reach process 0 at {} within {seconds} s: start it, or set MASTER_ADDR and MASTER_PORT",
                    shown(place)
                );
                return Err(io_error(what, error));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

fn hello(place: &Place, port: u16) -> String {
    format!("elinvar {VERSION} {} {} {port}", place.rank, place.world_size)
}

fn send_line(stream: &mut TcpStream, line: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(ANSWER))?;
    stream.write_all(format!("{line}\n").as_bytes())
}

/// A line, and not a byte of what follows.
fn read_line(stream: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(PAUSE);
        stream.set_read_timeout(Some(left))?;
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => return String::from_utf8(line).map_err(|e| io::Error::new(ErrorKind::InvalidData, e)),
            [byte] if line.len() < LONGEST_LINE => line.push(byte),
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "a line without an end")),
        }
    }
}

fn shown(place: &Place) -> String {
    format!("{}:{}", place.address, place.port)
}

fn list(ranks: &[usize]) -> String {
    let numbers: Vec<_> = ranks.iter().map(ToString::to_string).collect();
    format!("{} {}", if numbers.len() == 1 { "process" } else { "processes" }, numbers.join(", "))
}

fn io_error(what: String, error: io::Error) -> Error {
    Error::with_source(elinvar_core::ErrorKind::Io, what, error)
}

fn lost(error: &io::Error) -> Error {
    Error::device_lost(format!("a process went away while all met: {error}; its own message may say why, start all processes again"))
}
