//! Names with places that are filled in for each allocation.

use super::super::Name;
use crate::error::{Error, Result};

/// What can stand in a name.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// `{pid}`: the process.
    pub pid: u32,
    /// `{rank}`: the process among those of a distributed job; `None` where no
    /// launcher said so.
    pub rank: Option<String>,
    /// `{device}`: the ordinal.
    pub device: u32,
    /// `{n}`: the allocation's number for its rule, from 1.
    pub n: u64,
}

impl Facts {
    /// What is known of this process, by its variables.
    pub fn here(variable: impl Fn(&str) -> Option<String>) -> Self {
        const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];
        Self {
            pid: std::process::id(),
            rank: RANKS.iter().find_map(|name| variable(name)),
            ..Self::default()
        }
    }
}

/// A name with places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Pid,
    Rank,
    Device,
    N,
}

impl Template {
    /// `None` where a brace stands alone or holds another word, or there is
    /// nothing.
    pub fn new(text: &str) -> Option<Self> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            let (word, after) = rest[at..].strip_prefix('{')?.split_once('}')?;
            pieces.push(match word {
                "pid" => Piece::Pid,
                "rank" => Piece::Rank,
                "device" => Piece::Device,
                "n" => Piece::N,
                _ => return None,
            });
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        (!pieces.is_empty()).then_some(Self(pieces))
    }

    /// Is it another name for each allocation of a rule?
    pub fn counts(&self) -> bool {
        self.0.contains(&Piece::N)
    }

    /// The name. Fails where `{rank}` is not known, and where it is no name.
    pub fn fill(&self, facts: &Facts) -> Result<Name> {
        let mut name = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Pid => name.push_str(&facts.pid.to_string()),
                Piece::Rank => name.push_str(facts.rank.as_deref().ok_or_else(|| {
                    Error::new(
                        "{rank} is not known: none of RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID is set",
                    )
                })?),
                Piece::Device => name.push_str(&facts.device.to_string()),
                Piece::N => name.push_str(&facts.n.to_string()),
            }
        }
        Name::new(name)
    }
}
