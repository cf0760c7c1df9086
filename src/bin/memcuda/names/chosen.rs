//! Names as people write them behind a verb that changes each: by themselves, or by
//! patterns of which all that fit are meant.

use std::collections::HashSet;
use std::process::ExitCode;

use anyhow::Result;
use memcuda::names::{Name, Pattern};
use memcuda::share::client::Error;
use memcuda::share::protocol::{Code, Entry};

use crate::names::reach::{self, Keeper};
use crate::output;

/// A name, or what stands for some.
enum Said {
    Name(Name),
    Pattern(Pattern),
}

impl Said {
    fn new(text: &str) -> Result<Self> {
        let pattern = Pattern::new(text).filter(|_| Pattern::is_meant(text));
        match pattern {
            Some(pattern) => Ok(Self::Pattern(pattern)),
            None => Ok(Self::Name(Name::new(text)?)),
        }
    }
}

/// Does something with each of these names once, and prints the line that says what.
pub fn each(
    texts: &[String],
    mut work: impl FnMut(&mut Keeper, &Name) -> Result<String>,
) -> Result<ExitCode> {
    // All are looked at before anything is done.
    let said = texts.iter().map(|text| Said::new(text));
    let said: Vec<Said> = said.collect::<Result<_>>()?;
    let mut keeper = reach::find()?.keeper()?;
    let is_pattern = |said: &Said| matches!(said, Said::Pattern(_));
    let listed = match said.iter().any(is_pattern) {
        true => keeper.list(false)?,
        false => Vec::new(),
    };
    let mut names = Vec::new();
    let mut status = ExitCode::SUCCESS;
    for said in said {
        match said {
            Said::Name(name) => names.push(name),
            Said::Pattern(pattern) => {
                let before = names.len();
                let all = listed.iter().filter_map(|it| it.name.as_ref());
                names.extend(all.filter(|name| pattern.holds(name.as_str())).cloned());
                if names.len() == before {
                    output::say(format_args!("{pattern}: {}", reach::NO_NAME));
                    status = ExitCode::FAILURE;
                }
            }
        }
    }
    let mut done = HashSet::new();
    names.retain(|name| done.insert(name.clone()));
    let mut printed = Ok(());
    for name in names {
        match work(&mut keeper, &name) {
            // Nothing is left as it was because nobody reads of it.
            Ok(line) => {
                printed = printed.and_then(|()| output::line(format_args!("{name}: {line}")));
            }
            // The next name may be there.
            Err(error) if error.is::<Error>() => {
                output::say(format_args!("{name}: {error:#}"));
                status = ExitCode::FAILURE;
            }
            Err(error) => return Err(error),
        }
    }
    output::after(status, printed)
}

/// What is there under a name, as far as this user may look: who may change it need
/// not be allowed to.
pub fn seen(keeper: &mut Keeper, name: &Name) -> Result<Option<Entry>> {
    match keeper.show(name) {
        Ok(entry) => Ok(Some(entry)),
        Err(error) => match error.downcast_ref::<Error>() {
            Some(Error::Refused(Code::NotFound | Code::Denied, _)) => Ok(None),
            _ => Err(error),
        },
    }
}
