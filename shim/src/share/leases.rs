//! What this process holds, as the keeper counts it: said again wherever the connection was
//! lost. Asks nobody.

use std::collections::HashMap;

use memcuda_core::share::protocol::{Generation, Lease, Reply, Request};

/// Generations, and how often each is held.
#[derive(Default)]
pub(super) struct Leases(HashMap<Generation, u32>);

impl Leases {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As they are said.
    pub(super) fn all(&self) -> Vec<Lease> {
        let lease = |(&generation, &count)| Lease { generation, count };
        self.0.iter().map(lease).collect()
    }

    /// The keeper knows nothing of these.
    pub(super) fn forget(&mut self, lost: &[Generation]) {
        for generation in lost {
            self.0.remove(generation);
        }
    }

    /// Counts what a request began or ended, with its answer where there was one.
    pub(super) fn count(&mut self, request: &Request, reply: Option<&Reply>) {
        match (request, reply) {
            (Request::Export { generation, .. }, Some(_))
            | (_, Some(Reply::Make { generation })) => self.begins(*generation),
            (_, Some(Reply::Memory { entry, .. })) => self.begins(entry.generation),
            // Where it was not heard, the next connection says so.
            (Request::Release { generation } | Request::Abort { generation }, _) => {
                self.ends(*generation);
            }
            (Request::Withdraw { generation }, _) => drop(self.0.remove(generation)),
            _ => {}
        }
    }

    /// What is held no more once a request is done.
    pub(super) fn last_of(&self, request: &Request) -> Option<Generation> {
        match request {
            Request::Withdraw { generation } => Some(*generation),
            Request::Release { generation } | Request::Abort { generation } => {
                let count = self.0.get(generation).copied();
                (count == Some(1)).then_some(*generation)
            }
            _ => None,
        }
    }

    fn begins(&mut self, generation: Generation) {
        *self.0.entry(generation).or_insert(0) += 1;
    }

    fn ends(&mut self, generation: Generation) {
        if let Some(count) = self.0.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&generation);
            }
        }
    }
}
