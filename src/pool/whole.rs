//! The chunks that are wholly free, the largest first. Every plan asks for them in that order, and
//! few become free or are taken between two plans: so they stay in order, and those that came or
//! went are put right when somebody asks. Makes no driver call.

use super::chunk::ChunkId;
use super::chunks::Room;

/// So many changes are noted between two questions; after more, all are put in order anew.
const MOST: usize = 4096;

/// See the [module](self).
#[derive(Debug, Default, Clone)]
pub struct Whole {
    /// Their bytes and indexes, the largest first, as of the last question.
    order: Vec<(u64, ChunkId)>,
    /// Which chunks are in it, by index.
    listed: Vec<bool>,
    /// Which have come or gone since, in no order; where these are too many, not all.
    changed: Vec<ChunkId>,
}

impl Whole {
    /// A chunk has become wholly free, or is so no more.
    pub fn changes(&mut self, id: ChunkId) {
        if self.changed.len() <= MOST {
            self.changed.push(id);
        }
    }

    /// Puts those in order that have changed.
    pub fn put_in_order(&mut self, rooms: &[Room]) {
        if self.changed.is_empty() {
            return;
        }
        if self.changed.len() > MOST {
            self.changed.clear();
            self.changed.extend(0..rooms.len() as ChunkId);
        }
        let Self {
            order,
            listed,
            changed,
        } = self;
        let entry = |id: ChunkId| (rooms[id as usize].whole(), id);
        listed.resize(rooms.len(), false);
        order.retain(|&known| {
            let stays = entry(known.1) == known;
            listed[known.1 as usize] = stays;
            stays
        });
        let before = order.len();
        for (bytes, id) in changed.drain(..).map(entry) {
            if bytes > 0 && !std::mem::replace(&mut listed[id as usize], true) {
                order.push((bytes, id));
            }
        }
        if order.len() > before {
            order[before..].sort_unstable_by(|a, b| b.cmp(a));
            // Two that are in order: quick.
            order.sort_by(|a, b| b.cmp(a));
        }
    }

    /// All of them, since they were put in order.
    pub fn in_order(&self) -> &[(u64, ChunkId)] {
        debug_assert!(self.changed.is_empty());
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::chunk::Chunk;
    use crate::random::Random;

    #[test]
    fn they_are_as_if_all_were_put_in_order_each_time() {
        let mut random = Random::new(7);
        let (mut whole, mut rooms) = (Whole::default(), Vec::new());
        for round in 0..400 {
            // Now and then more than are noted.
            let changes = if round % 50 == 49 { 2 * MOST } else { 20 };
            for _ in 0..random.below(changes as u64) {
                let id = random.below(300) as usize;
                if id >= rooms.len() {
                    rooms.resize(id + 1, Room::NONE);
                }
                let mut chunk = Chunk::new(crate::driver::Handle(1), 4096 << random.below(4));
                match random.below(3) {
                    0 => rooms[id] = Room::of(&chunk),
                    1 => rooms[id] = Room::NONE,
                    _ => {
                        chunk.take(512, 512);
                        rooms[id] = Room::of(&chunk);
                    }
                }
                whole.changes(id as ChunkId);
            }
            whole.put_in_order(&rooms);
            let all = (0..).zip(&rooms).map(|(id, room)| (room.whole(), id));
            let mut expected: Vec<_> = all.filter(|(bytes, _)| *bytes > 0).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            assert_eq!(whole.in_order(), expected, "round {round}");
        }
    }
}
