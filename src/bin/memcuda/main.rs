//! The `memcuda` command: one file a verb. Exit codes: 0 done, 1 the operation
//! failed, 2 bad usage or input; `run` ends with the program's own status.

// They panic where nobody takes the output any more: `output` has what does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod accepted;
mod file_limit;
mod log;
mod names;
mod output;
mod pictures;
mod process;
mod program;
#[cfg(test)]
#[path = "../../../tests/support/random.rs"]
mod random;
mod survey;
mod verbs;
mod whole;

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};
use memcuda::log_line::Part;

use program::preload;
use verbs::{
    compare, completions, doctor, env, explain, gc, keeper, keeper_allocate, ls, man, persist,
    replay, rm, run, show, snapshot, stat, top, trace, web,
};

/// A stitching memory pool for unmodified CUDA programs.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Arguments),
    Env(env::Arguments),
    Compare(compare::Arguments),
    Doctor(doctor::Arguments),
    Stat(stat::Arguments),
    Top(top::Arguments),
    Web(web::Arguments),
    Snapshot(snapshot::Arguments),
    Explain(explain::Arguments),
    Replay(replay::Arguments),
    Trace(trace::Arguments),
    Ls(ls::Arguments),
    Show(show::Arguments),
    Persist(persist::Arguments),
    Rm(rm::Arguments),
    Gc(gc::Arguments),
    Keeper(keeper::Arguments),
    Completions(completions::Arguments),
    #[command(hide = true)]
    Man(man::Arguments),
    #[command(hide = true)]
    KeeperAllocate(keeper_allocate::Arguments),
}

fn main() -> ExitCode {
    file_limit::hold();
    let result = match Arguments::try_parse() {
        Ok(arguments) => work(arguments.verb),
        // Help, and the version.
        Err(asked) if !asked.use_stderr() => output::parsed(&asked),
        Err(wrong) => wrong.exit(),
    };
    result.unwrap_or_else(|error| {
        if output::is_unread(&error) {
            return ExitCode::SUCCESS;
        }
        output::say(format_args!("{error:#}"));
        // The library's error is always about input that people wrote.
        let bad_input = error.is::<memcuda::error::Error>();
        ExitCode::from(if bad_input { 2 } else { 1 })
    })
}

fn work(verb: Verb) -> Result<ExitCode> {
    if verb.asks_driver() {
        preload::leave()?;
    }
    log::start(verb.part(), verb.needs_log(), verb.says_of_log())?;
    match verb {
        Verb::Run(arguments) => run::main(&arguments),
        Verb::Env(arguments) => env::main(&arguments),
        Verb::Compare(arguments) => compare::main(&arguments),
        Verb::Doctor(arguments) => doctor::main(&arguments),
        Verb::Stat(arguments) => stat::main(&arguments),
        Verb::Top(arguments) => top::main(&arguments),
        Verb::Web(arguments) => web::main(&arguments),
        Verb::Snapshot(arguments) => snapshot::main(&arguments),
        Verb::Explain(arguments) => explain::main(&arguments),
        Verb::Replay(arguments) => replay::main(&arguments),
        Verb::Trace(arguments) => trace::main(&arguments),
        Verb::Keeper(arguments) => keeper::main(&arguments),
        Verb::Completions(arguments) => completions::main(&arguments, documented()),
        Verb::Man(arguments) => man::main(&arguments, documented()),
        Verb::Ls(arguments) => ls::main(&arguments),
        Verb::Show(arguments) => show::main(&arguments),
        Verb::Persist(arguments) => persist::main(&arguments),
        Verb::Rm(arguments) => rm::main(&arguments),
        Verb::Gc(arguments) => gc::main(&arguments),
        Verb::KeeperAllocate(arguments) => keeper_allocate::main(&arguments),
    }
}

impl Verb {
    /// Who speaks in the log.
    fn part(&self) -> Part {
        match self {
            Verb::Keeper(_) | Verb::KeeperAllocate(_) => Part::Keeper,
            Verb::Web(_) => Part::Web,
            _ => Part::Command,
        }
    }

    /// Does it start the driver in its own process?
    fn asks_driver(&self) -> bool {
        matches!(
            self,
            Verb::Compare(_) | Verb::Doctor(_) | Verb::KeeperAllocate(_)
        )
    }

    /// Does it not begin where its log cannot be opened?
    fn needs_log(&self) -> bool {
        match self {
            Verb::Keeper(arguments) => arguments.needs_log(),
            Verb::Web(arguments) => arguments.serves(),
            _ => false,
        }
    }

    /// Does nobody else say what is wrong with its log? A program's library does, and a
    /// keeper that does not begin.
    fn says_of_log(&self) -> bool {
        match self {
            Verb::Run(_) => false,
            Verb::Keeper(arguments) => !arguments.is_first(),
            _ => true,
        }
    }
}

/// The command as people are told of it: without its hidden verbs.
fn documented() -> clap::Command {
    let whole = Arguments::command();
    let verbs = whole.get_subcommands().filter(|verb| !verb.is_hide_set());
    clap::Command::new("memcuda")
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .subcommands(verbs.cloned().collect::<Vec<_>>())
}
