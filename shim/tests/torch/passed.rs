//! What torch's pages cannot be for others.

use crate::actor::Place;
use crate::sharing::{INVALID_VALUE, PAGE, Torch, actor};

/// As cudaMalloc's memory, though they are mapped, and the driver would take them.
#[test]
fn a_page_is_bound_to_no_multicast_object() {
    let place = Place::empty();
    let mut actor = actor(&place);
    let tensor = actor.torch(PAGE);
    assert_eq!(actor.code(&format!("bind {tensor}")), INVALID_VALUE);
    actor.give_up(&tensor);
    assert_eq!(actor.code(&format!("bind {tensor}")), INVALID_VALUE);
    actor.end();
}
