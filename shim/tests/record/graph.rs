//! What a capture writes into a graph takes no memory, and is nobody's.

use crate::{of, recording_of};

#[test]
fn a_node_of_a_graph_is_no_allocation() {
    for policy in ["stitch", "track"] {
        let (lines, said) = recording_of(&["graph"], &[("MEMCUDA_POLICY", policy)]);
        assert_eq!(said, "", "{policy}");
        assert_eq!(
            (of(&lines, "alloc"), of(&lines, "free")),
            (1, 1),
            "{policy}"
        );
    }
}
