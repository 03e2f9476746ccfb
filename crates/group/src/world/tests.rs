//! Processes are threads here.

use std::{
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use super::*;

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn place(rank: usize, world_size: usize, port: u16) -> Place {
    Place {
        rank,
        world_size,
        local_rank: rank,
        local_world_size: world_size,
        address: "127.0.0.1".into(),
        port,
        patience: Duration::from_secs(30),
        silence: Duration::from_secs(8),
    }
}

/// What each of so many processes does.
fn run<T: Send + 'static>(count: usize, work: impl Fn(World) -> T + Clone + Send + 'static) -> Vec<T> {
    run_with(count, |place| place, work)
}

/// The same of processes at other places.
fn run_with<T: Send + 'static>(count: usize, at: impl Fn(Place) -> Place, work: impl Fn(World) -> T + Clone + Send + 'static) -> Vec<T> {
    let port = port();
    let threads = (0..count).map(|rank| {
        let (work, place) = (work.clone(), at(place(rank, count, port)));
        thread::spawn(move || work(World::join(place).unwrap()))
    });
    threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// The errors of processes at these places that meet.
fn refused(places: Vec<Place>) -> Vec<String> {
    let join = |place| thread::spawn(move || World::join(place).err().map_or_else(|| "joined".to_owned(), |error| error.to_string()));
    places.into_iter().map(join).collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn parts_come_in_the_order_of_processes_and_are_as_long_as_they_were() {
    let found = run(4, |world| {
        let rank = world.place().rank;
        let parts = world.all_gather(&vec![rank as u8; 100_000 * rank]).unwrap();
        let lengths: Vec<_> = parts.iter().map(Vec::len).collect();
        assert!(parts.iter().enumerate().all(|(rank, part)| part.iter().all(|byte| *byte == rank as u8)));
        world.agree("model", b"the same").unwrap();
        (lengths, world.broadcast(&[rank as u8 + 1]).unwrap())
    });
    assert_eq!(found, vec![(vec![0, 100_000, 200_000, 300_000], vec![1]); 4]);
}

#[test]
fn a_process_that_differs_is_named_by_all() {
    let found = run(3, |world| world.agree("model", &[u8::from(world.place().rank == 2)]).unwrap_err().to_string());
    assert_eq!(found, vec!["process 2 has another model than process 0: give all processes the same"; 3]);
    let found = run(2, |world| if world.is_first() { world.broadcast(&[]).map(drop) } else { world.agree("model", &[]) }.map_err(|e| e.to_string()));
    let wanted = "process 0 does something else than this one: start all with one command, on the same files and settings";
    assert_eq!(found[1], Err(wanted.to_owned()));
}

#[test]
fn notes_that_differ_are_noticed_without_waiting() {
    let found = run(3, |world| {
        let rank = world.place().rank;
        for number in 0..1000 {
            // Some are ahead of others.
            let note = if rank == 2 && number == 999 { 7 } else { number };
            if world.note(note).is_err() {
                break;
            }
        }
        world.all_gather(&[]).map_err(|error| error.to_string())
    });
    let error = |process| Err::<Vec<Vec<u8>>, _>(format!("process {process} does something else than this one"));
    for (found, wanted) in found.iter().zip([error(2), error(2)]) {
        assert!(found.as_ref().is_err_and(|found| found.starts_with(wanted.as_ref().unwrap_err())), "{found:?}");
    }
    assert!(found[2].is_err());
}

#[test]
fn notes_that_all_have_made_are_forgotten() {
    let pending = run(3, |world| {
        (0..100).for_each(|number| world.note(number).unwrap());
        world.all_gather(&[]).unwrap();
        world.0.mail.pending_notes()
    });
    assert_eq!(pending, [0; 3]);
}

#[test]
fn a_process_that_ends_is_an_error_of_all_that_wait_for_it() {
    let found = run(3, |world| match world.place().rank {
        1 => None,
        _ => Some(world.all_gather(&[]).unwrap_err().to_string()),
    });
    let wanted = "process 1 ended before this one: its own message may say why";
    assert!([&found[0], &found[2]].iter().all(|found| found.as_deref() == Some(wanted)), "{found:?}");
}

#[test]
fn an_error_of_a_process_is_an_error_of_all() {
    let found = run(3, |world| match world.place().rank {
        1 => {
            world.fail(&Error::io("weights.gguf: no such file"));
            None
        }
        _ => Some(world.all_gather(&[]).unwrap_err().to_string()),
    });
    assert!([&found[0], &found[2]].iter().all(|found| found.as_deref() == Some("process 1: weights.gguf: no such file")), "{found:?}");
}

#[test]
fn a_process_that_is_killed_or_silent_is_noticed_by_those_that_ask_nothing_of_it() {
    for (is_killed, wanted) in [(true, "process 1 ended without a word"), (false, "nothing came from process 1 for 0.8 s")] {
        let soon = |place| Place { silence: Duration::from_millis(800), ..place };
        let found = run_with(3, soon, move |world| {
            if world.place().rank == 1 {
                // A process that is stopped holds its connections, and says nothing.
                let held = world.0.links.iter().flatten().map(|link| if is_killed { link.cut() } else { std::mem::forget(link.hold()) });
                held.for_each(drop);
                thread::sleep(Duration::from_secs(2));
                std::mem::forget(world);
                return None;
            }
            let start = Instant::now();
            while world.check().is_ok() && start.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(5));
            }
            Some((world.check().unwrap_err().to_string(), world.all_gather(&[]).is_err()))
        });
        for (message, ended) in found.iter().flatten() {
            assert!(message.starts_with(wanted) && *ended, "{message}");
        }
    }
}

#[test]
fn processes_that_cannot_meet_say_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let used = refused(vec![place(0, 2, taken.local_addr().unwrap().port())]);
    assert!(used[0].contains("set MASTER_PORT to a free port for all processes"), "{used:?}");

    let soon = |rank, world_size, port| Place { patience: Duration::from_millis(300), ..place(rank, world_size, port) };
    let alone = refused(vec![soon(0, 3, port())]);
    assert!(alone[0].starts_with("processes 1, 2 of 3 did not come within 0 s: start all of them"), "{alone:?}");
    let alone = refused(vec![soon(1, 3, port())]);
    assert!(alone[0].starts_with("process 1 did not reach process 0 at 127.0.0.1:"), "{alone:?}");

    let same = port();
    let twice = refused(vec![place(0, 3, same), place(1, 3, same), place(1, 3, same)]);
    assert!(twice[0] == "two processes have RANK=1: give each its own" && twice[1..].contains(&twice[0]), "{twice:?}");
    let same = port();
    let other = refused(vec![place(0, 2, same), place(1, 3, same)]);
    assert_eq!(other[0], "process 1 has WORLD_SIZE=3, process 0 WORLD_SIZE=2: give all the same");
}

#[test]
fn whatever_else_looks_at_the_port_is_left_alone() {
    let port = port();
    let first = thread::spawn(move || World::join(place(0, 2, port)).unwrap().broadcast(b"here").unwrap());
    let mut stranger = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    };
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let heard = World::join(place(1, 2, port)).unwrap().broadcast(&[]).unwrap();
    assert_eq!((heard, first.join().unwrap()), (b"here".to_vec(), b"here".to_vec()));
}
