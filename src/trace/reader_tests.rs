//! What is read of a trace, and which line is named.

use super::*;

const HEADER: &str = "t_us,op,id,bytes,stream\n";

fn read(bytes: &[u8]) -> Result<Vec<Event>> {
    Reader::new(bytes)?.collect()
}

fn message(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn columns_are_taken_by_name_with_or_without_a_first_line() {
    let expected = Event {
        line: 2,
        t_us: 7,
        op: Op::SegmentAlloc,
        id: 0x7f5a_3be0_0000,
        bytes: 2_097_152,
        stream: 3,
        device: 0,
        uses: None,
        owner: None,
        thread: 0,
        caller: 0,
        name: 0,
        stack: 0,
    };
    let plain = format!("{HEADER}7,segment_alloc,7f5a3be00000,2097152,3\n");
    assert_eq!(read(plain.as_bytes()), Ok(vec![expected]));
    let other = "# memcuda-trace 1\nname,device,stream,bytes,id,op,t_us\r\nw,2,3,2097152,0x7f5a3be00000,segment_alloc,7\r\n";
    let expected = Event {
        line: 3,
        device: 2,
        name: 1,
        ..expected
    };
    assert_eq!(read(other.as_bytes()), Ok(vec![expected]));
}

#[test]
fn zstd_is_recognised_and_a_cut_frame_is_an_error_with_its_line() {
    let mut text = HEADER.to_owned();
    for n in 0..20_000 {
        text += &format!("{n},alloc,{n:x},{},0\n", n * 512 % 7919 + 1);
    }
    let whole = zstd::encode_all(text.as_bytes(), 3).unwrap();
    assert_eq!(read(&whole).unwrap().len(), 20_000);
    assert_eq!(read(&whole), read(text.as_bytes()));
    for part in [5, whole.len() / 2, whole.len() - 1] {
        let message = message(&whole[..part]);
        assert!(
            message.contains("line ") && message.contains("truncated"),
            "{message}"
        );
    }
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.include_checksum(true).unwrap();
    std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
    let mut damaged = encoder.finish().unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    assert!(message(&damaged).contains("line "));
}

#[test]
fn each_wrong_line_is_named() {
    let cases = [
        ("", "line 1: the trace is empty"),
        ("# memcuda-trace 1\n", "line 2: the trace ends before"),
        ("# memcuda-trace 2\nx\n", "line 1: trace version \"2\""),
        ("# memcuda-trace 1\n# process 7\n", "line 2: the process is"),
        (
            "# memcuda-trace 1\n# process 7 8 a b\n",
            "line 3: the trace ends before",
        ),
        ("t_us,op,id,stream\n", "line 1: no column \"bytes\""),
        (
            "t_us,op,id,bytes,stream,x,x,bytes\n",
            "line 1: column \"bytes\" is there twice",
        ),
        ("t_us,op,id,bytes,stream", "line 1: the line is cut off"),
    ];
    for (text, expected) in cases {
        let message = message(text.as_bytes());
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    let cases = [
        ("0,alloc,0,512\n", "4 columns"),
        ("0,alloc,0,512,0,0\n", "6 columns"),
        ("soon,alloc,0,512,0\n", "t_us is \"soon\""),
        (
            "0,malloc,0,512,0\n",
            "op is \"malloc\"; accepted: alloc, free, free_done",
        ),
        ("0,alloc,one,512,0\n", "id is \"one\""),
        ("0,alloc,0,-1,0\n", "bytes is \"-1\""),
        ("0,alloc,0,512,\n", "stream is \"\""),
        ("0,alloc,0,512,0", "the line is cut off"),
        ("\n", "1 columns"),
    ];
    for (text, expected) in cases {
        let text = format!("{HEADER}0,alloc,0,512,0\n{text}");
        let message = message(text.as_bytes());
        assert!(
            message.contains("line 3: ") && message.contains(expected),
            "{text:?}: {message}"
        );
    }
}

#[test]
fn what_is_no_text_is_an_error() {
    assert!(message(b"\x7fELF\x02\x01\x01\0\0\n\xff\xfe\n").contains("line 1"));
    let long = vec![b'a'; 1 << 20];
    assert!(message(&long).contains("too long"));
}

#[test]
fn reading_ends_at_the_first_error() {
    let text = format!("{HEADER}bad\n0,alloc,0,512,0\n");
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn more_lost_events_than_a_number_holds_are_as_many_as_it_holds() {
    let text = format!("{HEADER}0,lost,0,18446744073709551615,0\n0,lost,0,1,0\n");
    let mut reader = Reader::new(text.as_bytes()).unwrap();
    assert!(reader.by_ref().all(|event| event.is_ok()));
    assert_eq!(reader.shortfall().lost, u64::MAX);
}
