//! The `replay` command: applies every get, put and delete of a trace in order, one operation at a time.
//!
//! The trace alone determines the value of each put ([`crate::input::trace_value`]), so an oracle can compute the
//! final content of the store. Policy switches during the replay must not change that content.

use crate::args::ReplayArgs;
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::figures::{grouped, rate, size};
use crate::input::Source;
use crate::input::trace::{Action, Layout, Operation, Trace};
use crate::input::trace_value::{self, Values};
use crate::output::Output;
use crate::progress::Progress;
use crate::store::Store;
use serde::Serialize;
use std::io::BufRead;

/// Policies that `replay --switch-every` cycles through, in order.
const PRESETS: [&str; 5] = ["leveling", "1-leveling", "tiering", "lazy-leveling", "universal"];

/// Counts of a replay's operations.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
struct Tally {
    puts: u64,
    put_bytes: u64,
    deletes: u64,
    hits: u64,
    misses: u64,
    switches: u64,
}

impl Tally {
    fn operations(&self) -> u64 {
        self.puts + self.deletes + self.hits + self.misses
    }

    fn text(&self, seconds: f64) -> String {
        format!(
            "{} operations in {seconds:.1} s, {} operations/s: {} puts of {} values, {} deletes, \
             {} gets ({} found, {} not), {} policy switches",
            grouped(self.operations()),
            grouped(rate(self.operations(), seconds)),
            grouped(self.puts),
            size(self.put_bytes),
            grouped(self.deletes),
            grouped(self.hits + self.misses),
            grouped(self.hits),
            grouped(self.misses),
            grouped(self.switches),
        )
    }
}

/// Source of the values of puts.
enum ValueSource {
    Generated,
    Real { name: String, values: Values<Box<dyn BufRead>> },
}

/// Inputs of a replay.
pub(super) struct Inputs {
    trace: Trace<Box<dyn BufRead>>,
    values: ValueSource,
}

/// Opens the trace and the values, and checks that they are compatible with the options.
pub(super) fn open(args: &ReplayArgs) -> Result<Inputs> {
    let trace = Trace::open(open_input(&args.trace)?);
    let mut trace = trace.map_err(|error| Failure::failed(&args.trace, error))?;
    match trace.layout() {
        Layout::Blocks if args.values.is_some() => {
            return Err(Failure::Usage("--values is for traces of keys; this one is of blocks".to_owned()));
        }
        Layout::Keys if args.expand_4k => {
            return Err(Failure::Usage(
                "--expand-4k is for traces of blocks; this one is of keys".to_owned(),
            ));
        }
        _ => {}
    }
    if args.expand_4k {
        trace.expand();
    }
    let values = match &args.values {
        None => ValueSource::Generated,
        Some(name) => ValueSource::Real { name: name.clone(), values: Values::new(open_input(name)?) },
    };
    Ok(Inputs { trace, values })
}

fn open_input(name: &str) -> Result<Box<dyn BufRead>> {
    let source = Source::open(name)?.decompressed().map_err(|e| Failure::failed(name, e))?;
    Ok(source.reader)
}

pub(super) fn replay(store: &dyn Store, args: &ReplayArgs, inputs: Inputs, out: &mut Output<'_>) -> Outcome {
    let Inputs { mut trace, values } = inputs;
    if let Some(name) = &args.policy {
        store.set_policy(name)?;
    }
    let mut progress = Progress::start("replay", None);
    let mut replay = Replay { store, args, values, value: Vec::new(), tally: Tally::default() };
    let mut done = Ok(());
    while done.is_ok()
        && let Some(operation) = trace.next()
    {
        let operation = operation.map_err(|error| Failure::failed(&args.trace, error));
        done = operation.and_then(|operation| replay.apply(&operation));
        progress.record(trace.bytes_read());
    }
    let (tally, seconds) = (replay.tally, progress.seconds());
    let text = tally.text(seconds);
    progress.finish(&if done.is_ok() {
        text
    } else {
        format!("stopped at line {} after {text}", trace.line())
    });
    done?;
    if args.json {
        out.json(&Summary { tally, seconds })?;
    }
    Ok(Verdict::Fine)
}

/// Summary of a replay as JSON.
#[derive(Serialize)]
struct Summary {
    #[serde(flatten)]
    tally: Tally,
    seconds: f64,
}

/// A replay in progress.
struct Replay<'a> {
    store: &'a dyn Store,
    args: &'a ReplayArgs,
    values: ValueSource,
    /// Value of the current put; the buffer is reused.
    value: Vec<u8>,
    tally: Tally,
}

impl Replay<'_> {
    fn apply(&mut self, operation: &Operation) -> Result<()> {
        self.switch_policy()?;
        match operation.action {
            Action::Get => match self.store.get(&operation.key)? {
                Some(_) => self.tally.hits += 1,
                None => self.tally.misses += 1,
            },
            Action::Put => {
                self.make_value(operation)?;
                self.store.put(&operation.key, &self.value, self.args.durability)?;
                self.tally.puts += 1;
                self.tally.put_bytes += self.value.len() as u64;
            }
            Action::Delete => {
                self.store.delete(&operation.key, self.args.durability)?;
                self.tally.deletes += 1;
            }
        }
        Ok(())
    }

    /// Switches to the next preset policy after every `--switch-every` operations.
    fn switch_policy(&mut self) -> Result<()> {
        let Some(interval) = self.args.switch_every else { return Ok(()) };
        let done = self.tally.operations();
        if done > 0 && done.is_multiple_of(interval) {
            let next = PRESETS[(self.tally.switches % PRESETS.len() as u64) as usize];
            self.store.set_policy(next)?;
            self.tally.switches += 1;
        }
        Ok(())
    }

    fn make_value(&mut self, put: &Operation) -> Result<()> {
        match &mut self.values {
            ValueSource::Generated => {
                trace_value::generate(&put.key, self.tally.puts, put.size, &mut self.value);
                Ok(())
            }
            ValueSource::Real { name, values } => {
                values.next_into(put.size, &mut self.value).map_err(|e| Failure::failed(name, e))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use crate::escape::to_hex;
    use crate::store::fake::FakeStore;
    use clap::Parser;

    fn arguments(line: &[&str]) -> ReplayArgs {
        let line = [&["drumlin", "replay", "db", "trace.csv"], line].concat();
        match Cli::try_parse_from(line).expect("good usage").command {
            Command::Replay(args) => args,
            other => panic!("not a replay: {other:?}"),
        }
    }

    fn run(store: &FakeStore, text: &str, values: ValueSource, line: &[&str]) -> Result<Tally> {
        let args = arguments(line);
        let mut replay = Replay { store, args: &args, values, value: Vec::new(), tally: Tally::default() };
        for operation in Trace::open(text.as_bytes()).expect("a header") {
            replay.apply(&operation.expect("a good line"))?;
        }
        Ok(replay.tally)
    }

    const TRACE: &str = "ts,op,key,size\n1,P,a,4\n2,G,a,0\n3,P,b,2\n4,D,a,0\n5,G,a,0\n6,P,b,3\n";

    #[test]
    fn operations_apply_in_order_and_are_tallied() {
        let store = FakeStore::default();
        let tally = run(&store, TRACE, ValueSource::Generated, &[]);
        let expected = Tally { puts: 3, put_bytes: 9, deletes: 1, hits: 1, misses: 1, switches: 0 };
        assert_eq!(tally, Ok(expected));
        // Expected value: the third put of the trace (write number 2), to key b.
        let mut value = Vec::new();
        trace_value::generate(b"b", 2, 3, &mut value);
        assert_eq!(to_hex(&store.get(b"b").expect("a map reads").expect("b was put")), to_hex(&value));
        assert_eq!(store.map.borrow().len(), 1);
    }

    #[test]
    fn real_values_are_taken_in_the_order_of_the_puts() {
        let store = FakeStore::default();
        let bytes: Box<dyn BufRead> = Box::new(&b"x blob 4\nfour\nx blob 2\nxy\nx blob 3\nxyz\n"[..]);
        let values = ValueSource::Real { name: "values".to_owned(), values: Values::new(bytes) };
        run(&store, TRACE, values, &[]).expect("the values fit");
        assert_eq!(store.contents(), [("b".to_owned(), "xyz".to_owned())]);
    }

    #[test]
    fn values_that_do_not_fit_the_trace_stop_it() {
        let store = FakeStore::default();
        let bytes: Box<dyn BufRead> = Box::new(&b"x blob 4\nfour\nx blob 3\nxyz\n"[..]);
        let values = ValueSource::Real { name: "values".to_owned(), values: Values::new(bytes) };
        let refused = run(&store, TRACE, values, &[]);
        let what = "values: object 2: the object has 3 bytes, the trace says 2".to_owned();
        assert_eq!(refused, Err(Failure::Failed(what)));
    }

    #[test]
    fn policies_are_switched_through_all_presets_in_turn() {
        let store = FakeStore::default();
        let gets = "1,G,a,0\n".repeat(14);
        let text = format!("ts,op,key,size\n{gets}");
        let tally = run(&store, &text, ValueSource::Generated, &["--switch-every", "2"]).expect("gets");
        assert_eq!(tally.switches, 6);
        let expected: Vec<_> =
            PRESETS.iter().chain(&PRESETS[..1]).map(|name| format!("policy {name}")).collect();
        assert_eq!(*store.calls.borrow(), expected);
    }
}
