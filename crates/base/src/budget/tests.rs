//! Tests of the limits, of the order in which waiting sessions are woken, and of charges.

use super::*;
use std::sync::atomic::AtomicBool;
use std::task::Wake;

const FREE: usize = 2 * GRANULE_BYTES;
const SESSION: Ceilings =
    Ceilings { argument: 8 * GRANULE_BYTES, request: 12 * GRANULE_BYTES, data: 16 * GRANULE_BYTES };
const PROCESS: usize = 40 * GRANULE_BYTES;

fn budget() -> Arc<MemoryBudget> {
    MemoryBudget::new(Ceilings::shares_of(PROCESS), SESSION, FREE)
}

#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Bell {
    fn rang(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

#[test]
fn the_first_bytes_of_a_session_are_not_claimed() {
    let budget = budget();
    let account = Account::new(&budget);
    let charge = account.reserve(MemoryPurpose::Data, FREE, 0).unwrap();
    assert_eq!((budget.claimed(), account.used()), (0, FREE));
    let more = account.reserve(MemoryPurpose::Data, 1, 0).unwrap();
    assert_eq!(budget.claimed(), GRANULE_BYTES);
    drop((charge, more));
    assert_eq!((budget.claimed(), account.used()), (0, 0));
}

#[test]
fn a_session_gets_its_limit_for_each_purpose_and_not_a_byte_more() {
    for (purpose, limit) in [
        (MemoryPurpose::Argument, SESSION.argument),
        (MemoryPurpose::Request, SESSION.request),
        (MemoryPurpose::Data, SESSION.data),
    ] {
        let account = Account::new(&budget());
        let first = account.reserve(purpose, FREE + 1, 0).unwrap();
        let rest = limit - first.bytes();
        assert_eq!(account.reserve(purpose, rest + 1, 0).unwrap_err(), Shortage::Session);
        assert!(account.reserve(purpose, rest, 0).is_ok());
    }
}

#[test]
fn one_request_is_always_possible() {
    let account = Account::new(&budget());
    let mut argument = account.reserve(MemoryPurpose::Argument, SESSION.argument, 0).unwrap();
    assert!(argument.grow_to(MemoryPurpose::Argument, SESSION.data, 0).is_ok(), "nothing else is in flight");
    let own = argument.bytes();
    let request = account.reserve(MemoryPurpose::Request, SESSION.request, own).unwrap();
    assert_eq!(account.reserve(MemoryPurpose::Request, 1, own).unwrap_err(), Shortage::Session);
    drop(request);
    assert!(account.reserve(MemoryPurpose::Request, 1, own).is_ok());
}

#[test]
fn a_session_is_woken_when_refused_bytes_fit_its_limit() {
    let account = Account::new(&budget());
    let bell = Arc::new(Bell::default());
    account.set_waker(&Waker::from(bell.clone()));
    let mut held = account.charge(SESSION.request);
    let own = account.charge(GRANULE_BYTES);
    assert!(account.reserve(MemoryPurpose::Data, SESSION.data, 0).is_err());
    // The larger of the two awaited uses decides, which is that of the second reservation.
    let wanted = 3 * GRANULE_BYTES;
    assert!(account.reserve(MemoryPurpose::Request, wanted, own.bytes()).is_err());
    held.shrink_to(SESSION.request - wanted);
    assert!(!bell.rang() && !account.take_has_room_again(), "one byte too few");
    held.shrink_to(SESSION.request - wanted - own.bytes());
    assert!(bell.rang() && account.take_has_room_again());
    assert!(account.reserve(MemoryPurpose::Request, wanted, own.bytes()).is_ok());
    assert!(!account.take_has_room_again(), "reported once");
    // Without other work in flight, any size fits.
    assert!(account.reserve(MemoryPurpose::Request, SESSION.data, own.bytes()).is_err());
    held.shrink_to(FREE + 1);
    assert!(!bell.rang());
    held.shrink_to(FREE);
    assert!(bell.rang());
    assert!(account.reserve(MemoryPurpose::Request, SESSION.data, own.bytes()).is_ok());
    assert!(!bell.rang(), "no session waits");
}

#[test]
fn requests_leave_memory_of_the_process_for_data() {
    let budget = budget();
    let accounts: Vec<_> = (0..5).map(|_| Account::new(&budget)).collect();
    let charges: Vec<_> =
        accounts.iter().map(|account| account.reserve(MemoryPurpose::Request, SESSION.request, 0)).collect();
    assert!(charges.iter().take(3).all(Result::is_ok));
    assert_eq!(charges.last().and_then(|charge| charge.as_ref().err()), Some(&Shortage::Process));
    let account = Account::new(&budget);
    assert!(account.reserve(MemoryPurpose::Data, FREE + 8 * GRANULE_BYTES, 0).is_ok());
}

#[test]
fn the_session_that_waits_longest_is_woken_first_and_keeps_its_position() {
    let budget = budget();
    let holder = Account::new(&budget);
    let mut held = holder.charge(FREE + PROCESS);
    let (one, two, late) = (Account::new(&budget), Account::new(&budget), Account::new(&budget));
    let bells: [Arc<Bell>; 2] = Default::default();
    let wanted = FREE + 4 * GRANULE_BYTES;
    for (account, bell) in [&one, &two].into_iter().zip(&bells) {
        assert_eq!(account.reserve(MemoryPurpose::Data, wanted, 0).unwrap_err(), Shortage::Process);
        account.wait(MemoryPurpose::Data, wanted, &Waker::from(bell.clone()));
    }
    held.shrink_to(FREE + PROCESS - 6 * GRANULE_BYTES);
    assert!(bells[0].rang() && !bells[1].rang());
    assert_eq!(late.reserve(MemoryPurpose::Data, wanted, 0).unwrap_err(), Shortage::Process, "others wait");
    let first = one.reserve(MemoryPurpose::Data, wanted, 0).unwrap();
    assert!(budget.is_short(), "the other one still waits");
    drop(first);
    assert!(bells[1].rang() && two.reserve(MemoryPurpose::Data, wanted, 0).is_ok());
    assert!(!budget.is_short());
}

#[test]
fn partially_received_arguments_do_not_deadlock() {
    let budget = budget();
    let size = FREE + 6 * GRANULE_BYTES;
    let accounts: Vec<_> = (0..20).map(|_| Account::new(&budget)).collect();
    let mut arguments: Vec<_> = accounts.iter().map(|account| account.charge(FREE + GRANULE_BYTES)).collect();
    let mut tickets: Vec<Option<Ticket>> = accounts.iter().map(|_| None).collect();
    let mut waiting: Vec<usize> = (0..accounts.len()).collect();
    let bells: Vec<Arc<Bell>> = accounts.iter().map(|_| Arc::default()).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 1000, "deadlock of {} arguments", waiting.len());
        waiting.retain(|&index| {
            let (account, argument) = (&accounts[index], &mut arguments[index]);
            while argument.bytes() < size {
                let more = argument.bytes() + GRANULE_BYTES;
                if argument.grow_to(MemoryPurpose::Argument, more, 0).is_err() {
                    let ticket = tickets[index].get_or_insert_with(|| Ticket::new(account));
                    ticket.wait(GRANULE_BYTES, &Waker::from(bells[index].clone()));
                    return true;
                }
            }
            let request = account.reserve(MemoryPurpose::Request, GRANULE_BYTES, argument.bytes());
            (*argument, tickets[index]) = (Charge::NONE, None);
            request.is_err()
        });
    }
    assert!(bells.iter().any(|bell| bell.rang()));
    assert_eq!((budget.claimed(), budget.is_short()), (0, false));
}

#[test]
fn an_argument_keeps_the_memory_of_requests_until_its_ticket_is_dropped() {
    let budget = budget();
    let holder = Account::new(&budget);
    let _held = holder.charge(FREE + PROCESS / 2);
    let (one, two) = (Account::new(&budget), Account::new(&budget));
    let bells: [Arc<Bell>; 2] = Default::default();
    let mut arguments = [&one, &two].map(|account| account.charge(FREE));
    let tickets = [&one, &two].map(Ticket::new);
    for ((argument, ticket), bell) in arguments.iter_mut().zip(&tickets).zip(&bells) {
        let grown = argument.grow_to(MemoryPurpose::Argument, FREE + GRANULE_BYTES, 0);
        assert_eq!(grown.unwrap_err(), Shortage::Process);
        ticket.wait(GRANULE_BYTES, &Waker::from(bell.clone()));
    }
    assert!(bells[0].rang() && !bells[1].rang(), "one at a time");
    let [first, second] = &mut arguments;
    assert!(first.grow_to(MemoryPurpose::Argument, FREE + GRANULE_BYTES, 0).is_ok());
    // Other reservations of the session do not change this.
    let request = one.reserve(MemoryPurpose::Request, 2 * GRANULE_BYTES, first.bytes()).unwrap();
    drop(request);
    assert!(second.grow_to(MemoryPurpose::Argument, FREE + GRANULE_BYTES, 0).is_err());
    assert!(first.grow_to(MemoryPurpose::Argument, FREE + 4 * GRANULE_BYTES, 0).is_ok());
    assert!(!bells[1].rang());
    let [ticket, _next] = tickets;
    drop(ticket);
    assert!(bells[1].rang());
    assert!(second.grow_to(MemoryPurpose::Argument, FREE + GRANULE_BYTES, 0).is_ok());
}

#[test]
fn a_grant_for_one_purpose_does_not_end_a_wait_for_another() {
    let budget = budget();
    let holder = Account::new(&budget);
    let mut held = holder.charge(FREE + PROCESS / 4 * 3);
    let account = Account::new(&budget);
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    account.set_waker(&waker);
    let wanted = FREE + 4 * GRANULE_BYTES;
    assert_eq!(account.reserve(MemoryPurpose::Request, wanted, 0).unwrap_err(), Shortage::Process);
    account.wait(MemoryPurpose::Request, wanted, &waker);
    assert!(account.reserve(MemoryPurpose::Data, GRANULE_BYTES, 0).is_ok(), "of the free bytes");
    let data = account.reserve(MemoryPurpose::Data, FREE + 1, 0).unwrap();
    assert!(budget.is_short() && !bell.rang());
    drop(data);
    held.shrink_to(FREE);
    assert!(bell.rang());
    assert!(account.reserve(MemoryPurpose::Request, wanted, 0).is_ok());
    assert!(!budget.is_short());
    assert!(bell.rang() && account.take_has_room_again(), "other reservations may try again");
}

#[test]
fn a_waiting_session_blocks_its_own_purpose_only() {
    let budget = budget();
    let holder = Account::new(&budget);
    let mut held = holder.charge(FREE + PROCESS);
    let accounts: [_; 3] = std::array::from_fn(|_| Account::new(&budget));
    let bells: [Arc<Bell>; 3] = Default::default();
    let wishes = [(MemoryPurpose::Request, 8), (MemoryPurpose::Request, 1), (MemoryPurpose::Data, 1)];
    for ((account, bell), (purpose, granules)) in accounts.iter().zip(&bells).zip(wishes) {
        let bytes = FREE + granules * GRANULE_BYTES;
        assert_eq!(account.reserve(purpose, bytes, 0).unwrap_err(), Shortage::Process);
        account.wait(purpose, bytes, &Waker::from(bell.clone()));
    }
    held.shrink_to(FREE + PROCESS / 4 * 3 - 4 * GRANULE_BYTES);
    assert!(!bells[0].rang() && !bells[1].rang() && bells[2].rang());
    assert!(
        Account::new(&budget).reserve(MemoryPurpose::Data, FREE + 1, 0).is_ok(),
        "no session waits for data"
    );
    held.shrink_to(FREE);
    assert!(bells[0].rang() && bells[1].rang() && !bells[2].rang());
}

#[test]
fn a_session_that_ends_leaves_the_queue() {
    let budget = budget();
    let holder = Account::new(&budget);
    let held = holder.charge(FREE + PROCESS);
    let (one, two) = (Account::new(&budget), Account::new(&budget));
    let bell = Arc::new(Bell::default());
    one.wait(MemoryPurpose::Data, FREE + PROCESS, Waker::noop());
    two.wait(MemoryPurpose::Data, FREE + 1, &Waker::from(bell.clone()));
    drop(one);
    assert!(!bell.rang(), "no memory was released");
    drop(held);
    assert!(bell.rang());
    drop(two);
    assert!(!budget.is_short());
}

#[test]
fn charges_split_shrink_and_return() {
    let budget = budget();
    let account = Account::new(&budget);
    let mut charge = account.charge(10 * GRANULE_BYTES);
    let part = charge.split(4 * GRANULE_BYTES);
    charge.shrink_to(GRANULE_BYTES);
    assert_eq!(
        (charge.bytes(), part.bytes(), account.used()),
        (GRANULE_BYTES, 4 * GRANULE_BYTES, 5 * GRANULE_BYTES)
    );
    let mut measured = Charge::NONE;
    measured.measure(&account, 7);
    measured.measure(&account, 3);
    assert_eq!(account.used(), 5 * GRANULE_BYTES + 3);
    drop((charge, part, measured));
    assert_eq!((account.used(), budget.claimed()), (0, 0));
}
