//! What a client says that it held, and never did. A thread of this test is another user,
//! which only root can do.

use memcuda::share::protocol::{Mode, Request};

use crate::requests::*;
use crate::rights::{READER, RULES, as_user, keeper};
use crate::support::*;

/// Who may open a name finds it in lists, whatever its state.
#[test]
fn what_is_hidden_or_deleted_is_not_had_by_claiming_it() {
    let Some((keeper, _)) = keeper(RULES) else {
        return;
    };
    let mut own = keeper.client();
    let hide = Request::Open {
        name: name("weights/hidden"),
        mode: Mode::Create,
        spec: spec(4096),
        write: true,
        hidden: true,
    };
    own.call(hide, &[]).unwrap();
    let hidden = list(&mut own, true).remove(0).generation;
    commit(&mut own, hidden, b"not final").unwrap();
    let deleted = make(&mut own, "weights/deleted", b"").unwrap();
    own.call(delete("weights/deleted"), &[]).unwrap();
    as_user(READER, READER, || {
        let claimed = [hidden, deleted].map(|generation| lease(generation, 1));
        let (_client, lost) = connect(&keeper.socket(), &claimed).unwrap();
        assert_eq!(lost, [hidden, deleted]);
    });
    // Who has them comes back to them.
    own.call(Request::ComeBack, &[]).unwrap();
    drop(own);
    let both = [hidden, deleted].map(|generation| lease(generation, 1));
    let (mut own, lost) = keeper.client_with(&both);
    assert_eq!(lost, []);
    own.call(Request::Seal { generation: hidden }, &[]).unwrap();
    has(&mut own, "weights/hidden", b"not final");
}
