//! Faults at every step of the real driver, and what is left after the next start: everything.
//!
//! `cargo test --release -p ratchet faults -- --nocapture` prints the table of cases tried and survived.

mod by_hand;
mod power;
mod scenario;
mod sound;
mod strike;
mod table;
mod tracer;

#[test]
fn every_fault_is_survived() {
    let mut table = table::Table::default();
    let scenarios = scenario::all();
    by_hand::damage(&mut table);
    for scenario in scenarios.iter().filter(|scenario| scenario.thorough) {
        power::cut(scenario, &mut table);
    }
    strike::strike(&scenarios, &mut table);
    table.close();
}
