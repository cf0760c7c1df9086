//! From the bytes of a queue, which anybody may have written, to a command or
//! to a refusal. Asks nobody and does nothing.

use serde_json::{Map, Value};

use super::command::{
    Address, Command, Create, Device, Fault, MOST_BYTES, MOST_TEXT, Operation, Refused,
};
use crate::names::{Dtype, MOST_EXTENTS, Name, bytes_of};

/// Reads a command.
pub fn read(bytes: &[u8]) -> Result<Command, Box<Refused>> {
    let fail = |fault, message| {
        Box::new(Refused {
            fault,
            message,
            address: Address::default(),
        })
    };
    if bytes.len() > MOST_BYTES {
        return Err(Box::new(too_long(bytes.len(), bytes, &[])));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the command is no JSON ({error}); accepted: one object");
        fail(Fault::Malformed, message)
    })?;
    let Value::Object(mut fields) = value else {
        let message = "the command is no object; accepted: {\"op\":...,\"name\":...}";
        return Err(fail(Fault::Malformed, message.to_owned()));
    };
    // Some clients write a null for what they do not say.
    fields.retain(|_, value| !value.is_null());
    let address = Address::of(&fields, &serde_json::from_slice(bytes).unwrap_or_default());
    match operation(&fields) {
        Ok(operation) => Ok(Command { operation, address }),
        Err((fault, message)) => Err(Box::new(Refused {
            fault,
            message,
            address,
        })),
    }
}

/// A command that is too long, of which only the beginning and the end are at
/// hand: its address is looked for in these.
pub fn too_long(bytes: usize, beginning: &[u8], end: &[u8]) -> Refused {
    let find = |field: &str| {
        let within = |text: &[u8]| text_behind(&String::from_utf8_lossy(text), field);
        within(beginning).or_else(|| within(end))
    };
    Refused {
        fault: Fault::TooLong,
        message: format!("the command has {bytes} bytes; accepted: up to {MOST_BYTES}"),
        address: Address {
            reply: find("reply"),
            vtid: find("vtid"),
            id: find("id").map(|id| Value::from(id).to_string()),
            ..Address::default()
        },
    }
}

/// The text that follows `"field":`, without escapes.
fn text_behind(text: &str, field: &str) -> Option<String> {
    let field = format!("\"{field}\"");
    let (_, behind) = text.split_once(&field)?;
    let value = behind.trim_start().strip_prefix(':')?.trim_start();
    let (value, _) = value.strip_prefix('"')?.split_once('"')?;
    (value.len() <= MOST_TEXT && !value.contains('\\')).then(|| value.to_owned())
}

type Fields = Map<String, Value>;
type Checked<T> = Result<T, (Fault, String)>;

fn operation(fields: &Fields) -> Checked<Operation> {
    let Some(op) = fields.get("op") else {
        return invalid(
            "the field op is missing; accepted: create, get, delete, persist, clone".to_owned(),
        );
    };
    match op.as_str() {
        Some("create" | "newtensor") => create(fields).map(Operation::Create),
        Some("get" | "gettensor") => name(fields, &["name", "key"]).map(Operation::Get),
        Some("delete" | "deltensor") => name(fields, &["name", "key"]).map(Operation::Delete),
        Some("persist") => Ok(Operation::Persist {
            name: name(fields, &["name", "key"])?,
            seconds: fields
                .get("seconds")
                .map(|value| whole(value, "seconds", i64::MAX as u64))
                .transpose()?,
        }),
        Some("clone" | "clonetensor") => Ok(Operation::Clone {
            source: name(fields, &["src"])?,
            name: name(fields, &["dst"])?,
            device: fields.get("device").map(device).transpose()?,
        }),
        _ => Err((
            Fault::UnknownOperation,
            format!(
                "the operation {} is not known; accepted: create, get, delete, persist, clone \
                 (newtensor, gettensor, deltensor, clonetensor)",
                shown(op)
            ),
        )),
    }
}

fn create(fields: &Fields) -> Checked<Create> {
    let name = name(fields, &["name", "key"])?;
    let dtype = match fields.get("dtype") {
        None => None,
        Some(Value::String(text)) => {
            Some(text.parse::<Dtype>().or_else(|e| invalid(e.to_string()))?)
        }
        Some(other) => return wrong("dtype", other, "a text as \"f32\""),
    };
    let shape = fields.get("shape").map(shape).transpose()?;
    let said = first(fields, &["bytes", "byte_size"])
        .map(|value| whole(value, "bytes", i64::MAX as u64))
        .transpose()?
        // The first clients wrote 0 where they did not know.
        .filter(|&bytes| bytes != 0);
    let bytes = match (dtype, &shape, said) {
        (Some(dtype), Some(shape), said) => {
            let bytes = bytes_of(dtype, shape).or_else(|e| invalid(e.to_string()))?;
            if let Some(said) = said.filter(|&said| said != bytes) {
                return invalid(format!(
                    "the shape {shape:?} of {dtype} has {bytes} bytes, not {said}; accepted: bytes that fit, or none"
                ));
            }
            bytes
        }
        (None, None, Some(bytes)) => bytes,
        _ => return invalid("accepted: dtype and shape, or bytes alone".to_owned()),
    };
    match fields.get("backend") {
        None => {}
        Some(Value::String(text)) if text == "vmm" => {}
        Some(other) => {
            return wrong(
                "backend",
                other,
                "vmm (cuda_ipc memory ends with its maker)",
            );
        }
    }
    let zero = match fields.get("zero") {
        None => false,
        Some(Value::Bool(zero)) => *zero,
        Some(other) => return wrong("zero", other, "true or false"),
    };
    Ok(Create {
        name,
        dtype,
        shape: shape.unwrap_or_default(),
        bytes,
        device: fields.get("device").map(device).transpose()?,
        zero,
    })
}

fn name(fields: &Fields, called: &[&str]) -> Checked<Name> {
    match first(fields, called) {
        Some(Value::String(text)) => Name::new(text.as_str()).or_else(|e| invalid(e.to_string())),
        Some(other) => wrong(called[0], other, "a text"),
        None => invalid(format!("the field {} is missing", called.join(" or "))),
    }
}

/// An array, or the text of one.
fn shape(value: &Value) -> Checked<Vec<u64>> {
    let wanted = "an array of whole numbers from 1, as [2,3]";
    let parsed: Value;
    let extents = match value {
        Value::Array(extents) => extents,
        Value::String(text) => {
            parsed = serde_json::from_str(text).unwrap_or_default();
            match &parsed {
                Value::Array(extents) => extents,
                _ => return wrong("shape", value, wanted),
            }
        }
        _ => return wrong("shape", value, wanted),
    };
    if extents.len() > MOST_EXTENTS {
        let count = extents.len();
        return invalid(format!(
            "the shape has {count} extents; accepted: up to {MOST_EXTENTS}"
        ));
    }
    let extent = |extent: &Value| match extent.as_u64() {
        Some(extent) if extent > 0 => Ok(extent),
        _ => wrong("shape", value, wanted),
    };
    extents.iter().map(extent).collect()
}

/// 0, "gpu0", "cuda:0" or "GPU-<UUID>"; "MIG-<UUID>" is the same of a part of a GPU.
fn device(value: &Value) -> Checked<Device> {
    const WANTED: &str =
        "an ordinal, as 0, \"gpu0\" or \"cuda:0\", or \"GPU-UUID\" (a part of one: \"MIG-UUID\")";
    if let Value::String(text) = value {
        let uuid = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        let mut kinds = ["GPU-", "MIG-"].into_iter();
        let rest = kinds.find_map(|kind| text.strip_prefix(kind));
        if let Some(rest) = rest.filter(|rest| rest.len() == 36 && uuid(rest)) {
            return Ok(Device::Uuid(format!("GPU-{rest}")));
        }
        let digits = ["gpu", "cuda:"]
            .iter()
            .find_map(|kind| text.strip_prefix(kind));
        let digits = digits.unwrap_or(text);
        let plain =
            !digits.is_empty() && digits.len() <= 4 && digits.bytes().all(|b| b.is_ascii_digit());
        return match digits.parse() {
            Ok(ordinal) if plain => Ok(Device::Ordinal(ordinal)),
            _ => wrong("device", value, WANTED),
        };
    }
    match value
        .as_u64()
        .and_then(|ordinal| u32::try_from(ordinal).ok())
    {
        Some(ordinal) if ordinal <= 9999 => Ok(Device::Ordinal(ordinal)),
        _ => wrong("device", value, WANTED),
    }
}

fn whole(value: &Value, field: &str, most: u64) -> Checked<u64> {
    match value.as_u64() {
        Some(number) if number <= most => Ok(number),
        _ => wrong(field, value, "a whole number up to 2^63-1"),
    }
}

fn first<'a>(fields: &'a Fields, called: &[&str]) -> Option<&'a Value> {
    called.iter().find_map(|name| fields.get(*name))
}

fn invalid<T>(message: String) -> Checked<T> {
    Err((Fault::Invalid, message))
}

fn wrong<T>(field: &str, value: &Value, accepted: &str) -> Checked<T> {
    invalid(format!(
        "the field {field} is {}; accepted: {accepted}",
        shown(value)
    ))
}

/// A value in a message: short, and without control characters.
fn shown(value: &Value) -> String {
    const MOST: usize = 60;
    let fit = |c: char| if c.is_control() { '?' } else { c };
    let text = value.to_string();
    let mut shown: String = text.chars().map(fit).take(MOST).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
