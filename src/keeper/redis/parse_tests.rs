//! What is accepted in all its spellings, what is refused and how, and random
//! bytes.

use serde_json::json;

use super::*;
use crate::random::Random;

fn read_text(text: &str) -> Result<Command, Box<Refused>> {
    read(text.as_bytes())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn the_spellings_of_three_generations_mean_the_same() {
    let first = r#"{"op":"create","name":"w","dtype":"f32","shape":[2,3],"device":1}"#;
    let later = r#"{"op":"newtensor","key":"w","dtype":"f32","shape":"[2,3]","device":"gpu1","byte_size":24,
        "vtid":7,"pc":"[0,0]"}"#;
    let wanted = Operation::Create(Create {
        name: name("w"),
        dtype: Some(Dtype::F32),
        shape: vec![2, 3],
        bytes: 24,
        device: Some(Device::Ordinal(1)),
        zero: false,
    });
    assert_eq!(read_text(first).unwrap().operation, wanted);
    let second = read_text(later).unwrap();
    assert_eq!(second.operation, wanted);
    assert_eq!(second.address.vtid.as_deref(), Some("7"));
    assert_eq!(second.address.pc.as_deref(), Some(r#""[0,0]""#));
    for (op, operation) in [
        ("get", Operation::Get(name("w"))),
        ("gettensor", Operation::Get(name("w"))),
        ("delete", Operation::Delete(name("w"))),
        ("deltensor", Operation::Delete(name("w"))),
    ] {
        let text = json!({"op": op, "name": "w", "id": [1], "pid": 3, "node": "n1"}).to_string();
        assert_eq!(read_text(&text).unwrap().operation, operation);
    }
    for (seconds, said) in [("null", None), ("0", Some(0)), ("60", Some(60))] {
        let text = format!(r#"{{"op":"persist","key":"w","seconds":{seconds}}}"#);
        let wanted = Operation::Persist {
            name: name("w"),
            seconds: said,
        };
        assert_eq!(read_text(&text).unwrap().operation, wanted);
    }
    let copy = read_text(r#"{"op":"clonetensor","src":"/a","dst":"/b","device":"cuda:0"}"#);
    let wanted = Operation::Clone {
        source: name("/a"),
        name: name("/b"),
        device: Some(Device::Ordinal(0)),
    };
    assert_eq!(copy.unwrap().operation, wanted);
}

#[test]
fn memory_without_a_shape_has_bytes() {
    let raw = read_text(r#"{"op":"create","name":"w","bytes":4096,"zero":true}"#).unwrap();
    let Operation::Create(raw) = raw.operation else {
        panic!("another operation")
    };
    assert_eq!((raw.bytes, raw.dtype, raw.zero), (4096, None, true));
}

#[test]
fn a_wrong_value_is_shown_as_it_was_written() {
    let refused = read_text(r#"{"op":"dr\"op","name":"w"}"#).unwrap_err();
    let said = refused.message;
    assert!(
        said.starts_with(r#"the operation "dr\"op" is not known;"#),
        "{said}"
    );
}

#[test]
fn what_is_wrong_is_said_in_one_line_to_who_asked() {
    for (fault, text) in [
        (Fault::Malformed, ""),
        (Fault::Malformed, "{"),
        (Fault::Malformed, "[]"),
        (Fault::Malformed, "\u{0}\u{1}"),
        (Fault::Malformed, &"[".repeat(5000)),
        (Fault::Invalid, r#"{"name":"w"}"#),
        (Fault::UnknownOperation, r#"{"op":"drop","name":"w"}"#),
        (Fault::UnknownOperation, r#"{"op":7,"name":"w"}"#),
        (Fault::Invalid, r#"{"op":"get"}"#),
        (Fault::Invalid, r#"{"op":"get","name":7}"#),
        (Fault::Invalid, r#"{"op":"get","name":"cmd"}"#),
        (Fault::Invalid, "{\"op\":\"get\",\"name\":\"a\\u001b[2J\"}"),
        (Fault::Invalid, r#"{"op":"create","name":"w"}"#),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32"}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"float","shape":[1]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":4,"shape":[1]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[-1]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[0]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[1.5]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":["2"]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":"2,3"}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":7}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[4294967296,4294967296]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[18446744073709551616]}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","dtype":"f32","shape":[2],"bytes":9}"#,
        ),
        (Fault::Invalid, r#"{"op":"create","name":"w","bytes":-9}"#),
        (Fault::Invalid, r#"{"op":"create","name":"w","bytes":0}"#),
        (Fault::Invalid, r#"{"op":"create","name":"w","bytes":9e99}"#),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","bytes":8,"device":-1}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","bytes":8,"device":"gpu"}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","bytes":8,"device":"gpu99999"}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","bytes":8,"backend":"cuda_ipc"}"#,
        ),
        (
            Fault::Invalid,
            r#"{"op":"create","name":"w","bytes":8,"zero":"yes"}"#,
        ),
        (Fault::Invalid, r#"{"op":"clonetensor","src":"a"}"#),
    ] {
        let with_reply = text.replacen('{', r#"{"reply":"me","id":5,"#, 1);
        for text in [text, &with_reply] {
            let refused = read_text(text).unwrap_err();
            assert_eq!(refused.fault, fault, "{text}: {}", refused.message);
            let said = &refused.message;
            assert!(
                said.len() < 400 && !said.chars().any(char::is_control),
                "{said}"
            );
        }
        if fault != Fault::Malformed {
            let refused = read_text(&with_reply).unwrap_err();
            assert_eq!(refused.address.reply.as_deref(), Some("me"));
            assert_eq!(refused.address.id.as_deref(), Some("5"));
        }
    }
}

/// As many as memory under a name may have.
#[test]
fn a_shape_has_up_to_32_extents() {
    let of = |extents: usize| {
        let shape = vec![1; extents];
        let text = json!({"op": "create", "name": "w", "dtype": "u8", "shape": shape});
        read_text(&text.to_string())
    };
    assert!(of(32).is_ok());
    for many in [33, 71] {
        let refused = of(many).unwrap_err();
        assert_eq!(refused.fault, Fault::Invalid);
        let said = format!("the shape has {many} extents; accepted: up to 32");
        assert_eq!(refused.message, said);
    }
}

#[test]
fn what_is_too_long_is_answered_by_its_beginning_or_its_end() {
    let padding = "x".repeat(10 << 20);
    let text = format!(r#"{{"op":"get","name":"{padding}","reply" : "me","id":"7"}}"#);
    let (beginning, end) = (
        &text.as_bytes()[..2048],
        &text.as_bytes()[text.len() - 2048..],
    );
    let refused = too_long(text.len(), beginning, end);
    assert_eq!(refused.fault, Fault::TooLong);
    assert_eq!(refused.address.reply.as_deref(), Some("me"));
    assert_eq!(refused.address.id.as_deref(), Some(r#""7""#));
    assert_eq!(read_text(&text).unwrap_err().fault, Fault::TooLong);
}

/// A part of a GPU is known by its digits, as any device.
#[test]
fn a_part_of_a_gpu_is_named_as_tools_name_it() {
    let digits = "01234567-89ab-cdef-0123-456789abcdef";
    for kind in ["GPU", "MIG"] {
        let text = format!(r#"{{"op":"clone","src":"/a","dst":"/b","device":"{kind}-{digits}"}}"#);
        let Operation::Clone { device, .. } = read_text(&text).unwrap().operation else {
            panic!("{text}");
        };
        assert_eq!(device, Some(Device::Uuid(format!("GPU-{digits}"))));
    }
}

/// Commands changed at random: none may panic, and what is accepted must be
/// within bounds. `MEMCUDA_FUZZ` is how many are tried.
#[test]
fn random_bytes_are_a_command_or_a_refusal() {
    let seeds: [&[u8]; 5] = [
        br#"{"op":"create","name":"w","dtype":"f32","shape":[2,3],"device":0,"bytes":24,"zero":false}"#,
        br#"{"op":"newtensor","key":"/m/w","dtype":"bf16","shape":"[10,10]","device":"gpu0","vtid":"1","pc":"[0,0]"}"#,
        br#"{"op":"get","name":"w","id":18446744073709551615,"reply":"me"}"#,
        br#"{"op":"clonetensor","src":"/a","dst":"/b","device":"GPU-01234567-89ab-cdef-0123-456789abcdef"}"#,
        "{\"op\":\"delete\",\"name\":\"\\u00e9\\ud83d\\ude00\",\"pc\":[[[[1e400]]],-0.0]}".as_bytes(),
    ];
    let pieces: [&[u8]; 16] = [
        b"\"",
        b"\\u0000",
        b"[",
        b"]",
        b"{",
        b"}",
        b":",
        b",",
        b"-1",
        b"18446744073709551616",
        b"null",
        b"1e309",
        b"\xff\xfe",
        b"\"shape\":",
        b"\"op\":\"create\"",
        b"9223372036854775807",
    ];
    let tries = std::env::var("MEMCUDA_FUZZ").map_or(100_000, |text| text.parse().unwrap());
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut random = |below| random.index(below);
    let (mut accepted, mut body) = (0_u64, Vec::new());
    for round in 0..tries {
        // Every now and then from the start again, else further away.
        if round % 16 == 0 || body.len() > 600 {
            body = seeds[random(seeds.len())].to_vec();
        }
        let at = random(body.len().max(1)).min(body.len());
        match random(5) {
            0 if at < body.len() => body[at] = random(256) as u8,
            1 if at < body.len() => drop(body.remove(at)),
            2 => body
                .splice(at..at, pieces[random(pieces.len())].iter().copied())
                .for_each(drop),
            3 => {
                let end = (at + random(12)).min(body.len());
                let some = body[at..end].to_vec();
                body.splice(at..at, some).for_each(drop);
            }
            _ if at < body.len() => body[at] = b"0123456789-\"[]{}:,"[random(18)],
            _ => {}
        }
        match read(&body) {
            Ok(command) => {
                accepted += 1;
                if let Operation::Create(create) = &command.operation {
                    assert!(create.bytes > 0 && create.bytes <= i64::MAX as u64);
                    assert!(create.shape.len() <= MOST_EXTENTS);
                }
            }
            Err(refused) => {
                let said = &refused.message;
                assert!(said.len() < 1000 && !said.contains('\n'), "{said}");
            }
        }
    }
    println!("{tries} executions, {accepted} accepted");
    assert!(
        accepted > tries / 100,
        "the changes hardly ever make a command"
    );
}
