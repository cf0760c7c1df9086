//! What a client is told: which list, which end of it, which text.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::command::{Address, Fault, Outcome};
use super::keys::Keys;

/// An answer on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The list.
    pub list: String,
    /// `RPUSH` or `LPUSH`.
    pub push: &'static str,
    /// What is pushed.
    pub text: String,
}

/// The answer to a command; `None` where nobody said where it is to go.
pub fn answer(address: &Address, keys: &Keys, outcome: &Outcome) -> Option<Answer> {
    let reply = address.reply.as_ref().filter(|key| keys.takes_answers(key));
    if let Some(list) = reply {
        return Some(Answer {
            list: list.clone(),
            push: "RPUSH",
            text: to_reply(address, outcome),
        });
    }
    let list = keys.queue(&format!("done:{}", address.vtid.as_ref()?));
    Some(Answer {
        list,
        push: "LPUSH",
        text: to_task(address, outcome),
    })
}

/// What of both protocols an answer says.
#[derive(Default, Serialize)]
struct Told<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a Map<String, Value>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    op: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pc: Option<Box<RawValue>>,
    status: &'static str,
}

/// Of our own protocol: everything.
fn to_reply(address: &Address, outcome: &Outcome) -> String {
    text(&Told {
        entry: outcome.as_ref().ok().and_then(Option::as_ref),
        id: address.id.clone().and_then(raw),
        name: address.name.as_deref(),
        op: address.op.as_deref(),
        ..Told::of(outcome)
    })
}

/// Of the second protocol: no more than it had.
fn to_task(address: &Address, outcome: &Outcome) -> String {
    let pc = address.pc.clone().unwrap_or_else(|| "null".to_owned());
    text(&Told {
        pc: raw(pc),
        ..Told::of(outcome)
    })
}

impl Told<'_> {
    fn of(outcome: &Outcome) -> Self {
        Self {
            status: if outcome.is_ok() { "ok" } else { "error" },
            error: outcome.as_ref().err().map(error),
            ..Self::default()
        }
    }
}

fn text(told: &Told<'_>) -> String {
    // Texts and numbers can be written always.
    serde_json::to_string(told).unwrap_or_default()
}

fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

fn error((fault, message): &(Fault, String)) -> Value {
    json!({"code": fault.text(), "message": message})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            reply: Some("me".to_owned()),
            vtid: Some("7".to_owned()),
            pc: Some("[0, 1]".to_owned()),
            id: Some("3".to_owned()),
            op: Some("get".to_owned()),
            name: Some("w".to_owned()),
        }
    }

    #[test]
    fn an_answer_goes_where_the_client_said() {
        let outcome = Err((Fault::NotFound, "there is no w".to_owned()));
        let told = answer(&address(), &Keys::new(""), &outcome).unwrap();
        assert_eq!((told.list.as_str(), told.push), ("me", "RPUSH"));
        let text: Value = serde_json::from_str(&told.text).unwrap();
        let error = json!({"code": "NOT_FOUND", "message": "there is no w"});
        let wanted = json!({"id": 3, "op": "get", "name": "w", "status": "error", "error": error});
        assert_eq!(text, wanted);

        let second = Address {
            reply: None,
            ..address()
        };
        let told = answer(&second, &Keys::new("a"), &Ok(None)).unwrap();
        assert_eq!((told.list.as_str(), told.push), ("a:done:7", "LPUSH"));
        let text: Value = serde_json::from_str(&told.text).unwrap();
        assert_eq!(text, json!({"pc": [0, 1], "status": "ok"}));
        assert_eq!(answer(&Address::default(), &Keys::new(""), &Ok(None)), None);
    }

    #[test]
    fn no_answer_is_written_into_a_key_of_the_protocol() {
        let sly = Address {
            reply: Some("tensor:cmd".to_owned()),
            vtid: None,
            ..address()
        };
        assert_eq!(answer(&sly, &Keys::new(""), &Ok(None)), None);
    }
}
