//! Tests of budgets, accounts and charges.

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
    let charge = account.reserve(Purpose::Data, FREE, 0).unwrap();
    assert_eq!((budget.claimed(), account.used()), (0, FREE));
    let more = account.reserve(Purpose::Data, 1, 0).unwrap();
    assert_eq!(budget.claimed(), GRANULE_BYTES);
    drop((charge, more));
    assert_eq!((budget.claimed(), account.used()), (0, 0));
}

#[test]
fn a_session_gets_its_limit_for_each_purpose_and_not_a_byte_more() {
    for (purpose, limit) in [
        (Purpose::Argument, SESSION.argument),
        (Purpose::Request, SESSION.request),
        (Purpose::Data, SESSION.data),
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
    let mut argument = account.reserve(Purpose::Argument, SESSION.argument, 0).unwrap();
    assert!(argument.grow_to(Purpose::Argument, SESSION.data, 0).is_ok(), "nothing else is in flight");
    let own = argument.bytes();
    let request = account.reserve(Purpose::Request, SESSION.request, own).unwrap();
    assert_eq!(account.reserve(Purpose::Request, 1, own).unwrap_err(), Shortage::Session);
    drop(request);
    assert!(account.reserve(Purpose::Request, 1, own).is_ok());
}

#[test]
fn what_the_session_refuses_is_woken_when_it_fits() {
    let account = Account::new(&budget());
    let bell = Arc::new(Bell::default());
    account.set_waker(&Waker::from(bell.clone()));
    let mut held = account.charge(SESSION.request);
    let own = account.charge(GRANULE_BYTES);
    assert!(account.reserve(Purpose::Data, SESSION.data, 0).is_err());
    // The larger use of the two is awaited: here what makes the second one fit.
    let wanted = 3 * GRANULE_BYTES;
    assert!(account.reserve(Purpose::Request, wanted, own.bytes()).is_err());
    held.shrink_to(SESSION.request - wanted);
    assert!(!bell.rang() && !account.take_has_room_again(), "a byte is missing");
    held.shrink_to(SESSION.request - wanted - own.bytes());
    assert!(bell.rang() && account.take_has_room_again());
    assert!(account.reserve(Purpose::Request, wanted, own.bytes()).is_ok());
    assert!(!account.take_has_room_again(), "reported once");
    // Alone it needs no more than the end of everything else.
    assert!(account.reserve(Purpose::Request, SESSION.data, own.bytes()).is_err());
    held.shrink_to(FREE + 1);
    assert!(!bell.rang());
    held.shrink_to(FREE);
    assert!(bell.rang());
    assert!(account.reserve(Purpose::Request, SESSION.data, own.bytes()).is_ok());
    assert!(!bell.rang(), "nobody waits");
}

#[test]
fn requests_leave_the_process_room_for_data() {
    let budget = budget();
    let accounts: Vec<_> = (0..5).map(|_| Account::new(&budget)).collect();
    let charges: Vec<_> =
        accounts.iter().map(|account| account.reserve(Purpose::Request, SESSION.request, 0)).collect();
    assert!(charges.iter().take(3).all(Result::is_ok));
    assert_eq!(charges.last().and_then(|charge| charge.as_ref().err()), Some(&Shortage::Process));
    let account = Account::new(&budget);
    assert!(account.reserve(Purpose::Data, FREE + 8 * GRANULE_BYTES, 0).is_ok());
}

#[test]
fn who_waits_longest_is_woken_first_and_keeps_its_place() {
    let budget = budget();
    let holder = Account::new(&budget);
    let mut held = holder.charge(FREE + PROCESS);
    let (one, two, late) = (Account::new(&budget), Account::new(&budget), Account::new(&budget));
    let bells: [Arc<Bell>; 2] = Default::default();
    let wanted = FREE + 4 * GRANULE_BYTES;
    for (account, bell) in [&one, &two].into_iter().zip(&bells) {
        assert_eq!(account.reserve(Purpose::Data, wanted, 0).unwrap_err(), Shortage::Process);
        account.wait(Purpose::Data, wanted, &Waker::from(bell.clone()));
    }
    held.shrink_to(FREE + PROCESS - 6 * GRANULE_BYTES);
    assert!(bells[0].rang() && !bells[1].rang());
    assert_eq!(late.reserve(Purpose::Data, wanted, 0).unwrap_err(), Shortage::Process, "others wait");
    let first = one.reserve(Purpose::Data, wanted, 0).unwrap();
    assert!(budget.is_short(), "the other one waits on");
    drop(first);
    assert!(bells[1].rang() && two.reserve(Purpose::Data, wanted, 0).is_ok());
    assert!(!budget.is_short());
}

#[test]
fn arguments_that_wait_for_each_other_are_completed_one_by_one() {
    let budget = budget();
    let size = FREE + 6 * GRANULE_BYTES;
    let accounts: Vec<_> = (0..20).map(|_| Account::new(&budget)).collect();
    let mut arguments: Vec<_> = accounts.iter().map(|account| account.charge(FREE + GRANULE_BYTES)).collect();
    let mut waiting: Vec<usize> = (0..accounts.len()).collect();
    let bells: Vec<Arc<Bell>> = accounts.iter().map(|_| Arc::default()).collect();
    let mut rounds = 0;
    while !waiting.is_empty() {
        rounds += 1;
        assert!(rounds < 1000, "{} wait for each other", waiting.len());
        waiting.retain(|&index| {
            let (account, argument) = (&accounts[index], &mut arguments[index]);
            while argument.bytes() < size {
                let more = argument.bytes() + GRANULE_BYTES;
                if argument.grow_to(Purpose::Argument, more, 0).is_err() {
                    account.wait(Purpose::Argument, GRANULE_BYTES, &Waker::from(bells[index].clone()));
                    return true;
                }
            }
            let request = account.reserve(Purpose::Request, GRANULE_BYTES, argument.bytes());
            *argument = Charge::NONE;
            request.is_err()
        });
    }
    assert!(bells.iter().any(|bell| bell.rang()));
    assert_eq!((budget.claimed(), budget.is_short()), (0, false));
}

#[test]
fn a_session_that_ends_leaves_the_queue() {
    let budget = budget();
    let holder = Account::new(&budget);
    let held = holder.charge(FREE + PROCESS);
    let (one, two) = (Account::new(&budget), Account::new(&budget));
    let bell = Arc::new(Bell::default());
    one.wait(Purpose::Data, FREE + PROCESS, Waker::noop());
    two.wait(Purpose::Data, FREE + 1, &Waker::from(bell.clone()));
    drop(one);
    assert!(!bell.rang(), "nothing has returned");
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
