//! Where the memory of small traces went.

use super::*;

fn of(text: &str) -> Result<Account> {
    account(|| Reader::new(text.as_bytes()))
}

const HEADER: &str = "t_us,op,id,bytes,stream,device,caller,name\n";

#[test]
fn a_peak_is_made_of_what_was_live_then() {
    let text = format!(
        "{HEADER}\
         100,alloc,1,1048576,0,0,liba.so,\n\
         200,alloc,2,52428800,1,0,libb.so,kv\n\
         250,free,1,1048576,0,0,liba.so,\n\
         250,free_done,1,1048576,0,0,liba.so,\n\
         300,alloc,3,2048,1,0,liba.so,\n\
         400,alloc,4,1024,1,1,liba.so,\n\
         500,free,2,52428800,1,0,,\n"
    );
    let account = of(&text).unwrap();
    assert_eq!((account.events, account.duration_us), (7, 400));
    let device = &account.devices[&0];
    let program = &device.program;
    assert_eq!((program.allocs, program.asked_bytes), (3, 53_479_424));
    assert_eq!((program.peak_bytes, program.peak_us), (53_477_376, 100));
    assert_eq!(program.left_bytes, 2048);
    let part = |what: &str, count, bytes| Part {
        what: what.to_owned(),
        count,
        bytes,
    };
    let peak = &device.peak;
    assert_eq!(
        peak.callers,
        [
            part("libb.so", 1, 52_428_800),
            part("liba.so", 1, 1_048_576)
        ]
    );
    assert_eq!(
        peak.sizes,
        [
            part("to 1 MiB", 1, 1_048_576),
            part("to 256 MiB", 1, 52_428_800)
        ]
    );
    assert_eq!(peak.names[0], part("kv", 1, 52_428_800));
    assert_eq!(peak.streams[0].what, "stream 1");
    assert_eq!((peak.largest[0].t_us, peak.largest.len()), (100, 2));
    assert_eq!(account.devices[&1].program.peak_bytes, 1024);
}

#[test]
fn segments_are_beside_tensors_and_in_their_place_where_there_are_none() {
    let text = "t_us,op,id,bytes,stream\n\
         0,segment_alloc,a,20971520,0\n\
         1,alloc,1,4096,0\n\
         2,alloc,2,8192,0\n\
         3,free,1,4096,0\n\
         4,segment_alloc,b,2097152,0\n";
    let account = of(text).unwrap();
    let device = &account.devices[&0];
    assert_eq!(device.program.peak_bytes, 12_288);
    assert_eq!(device.segments.as_ref().unwrap().peak_bytes, 23_068_672);
    assert_eq!(device.live_at_segment_peak, 8192);
    let only = "t_us,op,id,bytes,stream\n0,segment_alloc,a,20971520,0\n";
    let account = of(only).unwrap();
    let device = &account.devices[&0];
    assert_eq!(device.program.peak_bytes, 20_971_520);
    assert!(device.segments.is_none() && device.peak.largest.len() == 1);
}

#[test]
fn a_refusal_counts_where_the_same_is_not_served_after_it() {
    let text = "t_us,op,id,bytes,stream,thread\n\
         0,refused,0,5000,0,a\n\
         0,refused,0,5000,0,a\n\
         1,alloc,1,5000,0,a\n\
         2,refused,0,7000,0,a\n\
         2,refused,0,9000,0,b\n\
         3,alloc,2,100,0,b\n";
    assert_eq!(of(text).unwrap().devices[&0].refused, (2, 9000));
}

#[test]
fn a_timeline_has_a_bounded_number_of_steps_and_the_highest_of_each() {
    let mut text = "t_us,op,id,bytes,stream\n".to_owned();
    for n in 0..20_000_u64 {
        let t = n * 1000;
        text += &format!("{t},alloc,{n:x},{},0\n", 512 + n);
        text += &format!("{},free,{n:x},1,0\n", t + 1);
    }
    let account = of(&text).unwrap();
    let timeline = &account.devices[&0].program.timeline;
    assert!(timeline.steps.len() <= STEPS && timeline.steps.len() > STEPS / 4);
    let highest = timeline.steps.iter().map(|step| sum(step)).max();
    assert_eq!(highest, Some(account.devices[&0].program.peak_bytes));
    assert!(timeline.steps.iter().all(|step| sum(step) >= 512));
}

#[test]
fn more_live_bytes_than_a_number_holds_are_an_error_with_its_line() {
    for op in ["alloc", "segment_alloc"] {
        let most = format!("0,{op},1,9223372036854775807,0\n0,{op},2,9223372036854775807,0\n");
        let text = format!("t_us,op,id,bytes,stream\n{most}");
        let account = of(&text).unwrap();
        assert_eq!(account.devices[&0].program.peak_bytes, u64::MAX - 1);
        let error = of(&format!("{text}0,{op},c,9223372036854775807,0\n")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 4: c is more than there can be beside what is live"
        );
    }
}

#[test]
fn what_contradicts_itself_is_an_error() {
    for text in [
        "t_us,op,id,bytes,stream\n",
        "t_us,op,id,bytes,stream\n0,alloc,1,5,0\n0,alloc,1,5,0\n",
        "t_us,op,id,bytes,stream\n0,free,1,5,0\n",
    ] {
        assert!(of(text).is_err(), "{text}");
    }
}
