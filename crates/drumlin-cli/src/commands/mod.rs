//! One function per subcommand, over `&dyn Store`. This module opens the store before the command and closes it
//! after.

mod access;
mod care;
mod growth;
mod load;
mod pipeline;
mod pipeline_course;
mod pipeline_engine;
mod pipeline_page;
mod replay;
mod report;
mod sim;
mod value_files;

use crate::args::{Cli, Command, StoreArgs};
use crate::failure::{Failure, Outcome, Result, Verdict};
use crate::output::Output;
use crate::store::{Access, Store, engine};

/// Runs the command that `cli` names. Opens the inputs before the store, so that a mistyped file name creates no
/// store.
pub(crate) fn run(cli: Cli, out: &mut Output<'_>) -> Outcome {
    use Access::{Create, Existing, Read};
    let named = cli.keyspace.as_deref();
    if let (Some(_), Some(what)) = (named, of_no_keyspace(&cli.command)) {
        return Err(Failure::Usage(format!("--keyspace has no effect here: {what}")));
    }
    let existing = |args| open(args, named, Existing);
    let read = |args| open(args, named, Read);
    match &cli.command {
        Command::Load(a) => {
            let input = load::open(a)?;
            closing(open(&a.store, named, Create)?, |s| load::load(s, a, input, out))
        }
        Command::Replay(a) => {
            let inputs = replay::open(a)?;
            closing(open(&a.store, named, Create)?, |s| replay::replay(s, a, inputs, out))
        }
        Command::Put(a) => closing(open(&a.store, named, Create)?, |s| access::put(s, a)),
        Command::Get(a) => closing(read(&a.store)?, |s| access::get(s, a, out)),
        Command::Delete(a) => closing(existing(&a.store)?, |s| access::delete(s, a)),
        Command::Scan(a) => closing(read(&a.store)?, |s| access::scan(s, a, out)),
        Command::Count(a) => closing(read(&a.store)?, |s| access::count(s, a, out)),
        Command::Verify(a) => closing(read(&a.store)?, |s| report::verify(s, a, out)),
        Command::Tree(a) => closing(read(&a.store)?, |s| report::tree(s, a, named, out)),
        Command::Stats(a) => closing(read(&a.store)?, |s| report::stats(s, a, out)),
        Command::Explain(a) => closing(read(&a.store)?, |s| report::explain(s, a, named, out)),
        Command::Keyspaces(a) => closing(read(&a.store)?, |s| report::keyspaces(s, a, out)),
        Command::Compact(a) => closing(existing(&a.store)?, |s| care::compact(s, a, out)),
        Command::Checkpoint(a) => closing(existing(&a.store)?, |s| care::checkpoint(s, a, out)),
        Command::Policy(a) => closing(existing(&a.store)?, |s| care::policy(s, a, out)),
        Command::Repair(a) => care::repair(a, out),
        Command::Options(a) => report::options(a, out),
        Command::Sim(a) => sim::sim(a, out),
        Command::Bench(_) => Ok(Verdict::Fine),
    }
}

/// Returns what a command works on instead of a keyspace; `None` if it works on a keyspace.
pub(crate) fn of_no_keyspace(command: &Command) -> Option<&'static str> {
    match command {
        Command::Verify(_) | Command::Stats(_) | Command::Keyspaces(_) => {
            Some("the report is about the whole store")
        }
        Command::Compact(_) | Command::Checkpoint(_) | Command::Repair(_) => {
            Some("the command works on the whole store")
        }
        Command::Options(_) | Command::Sim(_) | Command::Bench(_) => Some("the command opens no store"),
        _ => None,
    }
}

fn open(args: &StoreArgs, keyspace: Option<&str>, access: Access) -> Result<Box<dyn Store>> {
    engine::open(&args.options(keyspace, access))
}

/// Runs `command` on `store` and closes the store in every case. Returns the first error.
fn closing(store: Box<dyn Store>, command: impl FnOnce(&dyn Store) -> Outcome) -> Outcome {
    let outcome = command(&*store);
    let closed = store.close();
    let verdict = outcome?;
    closed?;
    Ok(verdict)
}
