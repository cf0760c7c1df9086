//! What each variable accepts, and what is said of the rest.

use super::*;
use crate::units::{GIB, MIB};

fn read(name: &str, value: impl Into<OsString>) -> Result<Config> {
    let value = value.into();
    Config::read(|n| (n == name).then(|| value.clone()))
}

#[test]
fn the_first_accepted_value_is_the_default() {
    for variable in VARIABLES {
        let first = variable.accepts.split(',').next().unwrap();
        if first != "unset" {
            assert_eq!(read(variable.name, first), Ok(Config::default()));
        }
    }
}

#[test]
fn an_empty_variable_is_as_one_that_is_not_set() {
    for variable in VARIABLES {
        for nothing in ["", " \t"] {
            assert_eq!(read(variable.name, nothing), Ok(Config::default()));
        }
    }
}

#[test]
fn an_invalid_value_is_named_with_what_is_accepted() {
    // A path, a rule (read elsewhere) or a text may be any word.
    const ANY: [&str; 6] = [
        "MEMCUDA_LOG_FILE",
        "MEMCUDA_NAMES",
        "MEMCUDA_NAMES_FILE",
        "MEMCUDA_NAMESPACE",
        "MEMCUDA_OOM_REPORT",
        "MEMCUDA_TRACE",
    ];
    for variable in VARIABLES.iter().filter(|v| !ANY.contains(&v.name)) {
        let message = read(variable.name, "maybe").unwrap_err().to_string();
        assert!(message.contains(variable.name));
        let secret = variable.name == "MEMCUDA_REDIS";
        assert_eq!(message.contains("maybe"), !secret, "{message}");
        assert!(message.contains(variable.accepts), "{message}");
    }
}

#[test]
fn what_a_size_is_stands_in_the_same_line() {
    let message = read("MEMCUDA_LIMIT", "24G").unwrap_err().to_string();
    assert!(
        message.ends_with("; SIZE is 512MiB, 24GiB, 1.5GB or bytes"),
        "{message}"
    );
    let message = read("MEMCUDA_TORCH", "nativ").unwrap_err().to_string();
    assert!(message.ends_with(", keep"), "{message}");
}

#[test]
fn a_limit_is_for_all_devices_or_for_each() {
    assert_eq!(
        read("MEMCUDA_LIMIT", "24GiB").unwrap().limit_of(3),
        Some(24 * GIB)
    );
    let each = read("MEMCUDA_LIMIT", "0=24GiB,1=40GiB").unwrap();
    assert_eq!(
        [0, 1, 2].map(|d| each.limit_of(d)),
        [Some(24 * GIB), Some(40 * GIB), None]
    );
    for wrong in [
        "0",
        "24",
        "1MiB",
        "0=24GiB,1=40",
        "0=1GiB,0=2GiB",
        "1=1GiB,0=1GiB,01=1GiB",
    ] {
        let message = read("MEMCUDA_LIMIT", wrong).unwrap_err().to_string();
        assert!(message.contains("ORDINAL=SIZE"), "{wrong}: {message}");
    }
}

#[test]
fn idle_memory_is_a_size_or_a_part_of_the_device() {
    let kept = |value, total| read("MEMCUDA_IDLE", value).unwrap().idle.of(total);
    assert_eq!(Config::default().idle.of(140 * GIB), 14 * GIB);
    assert_eq!(kept("2GiB", 140 * GIB), 2 * GIB);
    assert_eq!(kept("2.5%", 40 * GIB), GIB);
    assert_eq!(
        [kept("0", GIB), kept("0%", GIB), kept("100%", GIB)],
        [0, 0, GIB]
    );
    for wrong in [
        "10",
        "101%",
        "-1%",
        "%",
        "nan%",
        "ten",
        "10 percent",
        "-5MiB",
    ] {
        let message = read("MEMCUDA_IDLE", wrong).unwrap_err().to_string();
        assert!(message.contains("10%, PERCENT, SIZE"), "{message}");
    }
}

#[test]
fn chunks_are_multiples_of_the_granularity() {
    assert_eq!(
        read("MEMCUDA_CHUNK", "32MiB").unwrap().chunk,
        Some(32 * MIB)
    );
    assert!(read("MEMCUDA_CHUNK", "3MiB").is_err());
    assert!(read("MEMCUDA_CHUNK", "2GiB").is_err());
}

#[test]
fn a_keeper_is_found_by_its_socket() {
    let keeper = |value| read("MEMCUDA_KEEPER", value).map(|config| config.keeper);
    assert_eq!(keeper("off"), Ok(Keeper::Off));
    assert_eq!(
        keeper("/run/k.sock"),
        Ok(Keeper::Socket("/run/k.sock".into()))
    );
    assert!(keeper("k.sock").is_err());
}

#[test]
fn a_registry_is_known_by_its_scheme() {
    let redis = |value| read("MEMCUDA_REDIS", value).map(|config| config.redis);
    for url in [
        "redis://host:6379/2",
        "rediss://u:p@host",
        "rediss://:p%20q@host:1/#insecure",
        "redis://u:p@ss@[::1]:65535/?protocol=resp3",
        "redis+unix:///run/r.sock",
        "redis+unix:///run/r s.sock?db=1&user=u&pass=p",
    ] {
        assert_eq!(redis(url), Ok(Some(url.to_owned())));
    }
    for wrong in [
        "redis://",
        "http://host",
        "redis://u:p@",
        "redis://:6379",
        "redis://host:99999",
        "redis://host:+1",
        "redis://host/x",
        "redis://a b",
        "redis://[::1",
        "redis://[::g]",
        "redis+unix://run/r.sock",
        "redis+unix://",
        "redis+unix:///run/r.sock?db=x",
    ] {
        assert!(redis(wrong).is_err(), "{wrong}");
    }
}

/// It may hold a password, and the line is in logs that many read.
#[test]
fn the_address_of_a_registry_is_not_said() {
    let message = read("MEMCUDA_REDIS", "redis://u:geheim@h:x").unwrap_err();
    let message = message.to_string();
    assert!(!message.contains("geheim"), "{message}");
    assert!(message.contains("HOST[:PORT]"), "{message}");
}

#[test]
fn all_that_is_wrong_is_told_and_what_is_right_is_kept() {
    let value = |name: &str| match name {
        "MEMCUDA_LIMIT" | "MEMCUDA_TORCH" => Some("x".into()),
        "MEMCUDA_LOG_FORMAT" => Some("json".into()),
        _ => None,
    };
    let (config, wrong) = Config::read_all(value);
    assert!(config.log_json);
    let wrong: Vec<_> = wrong.iter().map(Error::to_string).collect();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("MEMCUDA_TORCH=x") && wrong[1].contains("MEMCUDA_LIMIT=x"));
    assert_eq!(Config::read(value).unwrap_err().to_string(), wrong[0]);
}

#[test]
fn a_namespace_meets_no_other_key() {
    let namespace = |value| read("MEMCUDA_NAMESPACE", value).map(|config| config.namespace);
    assert_eq!(namespace("rack-1/host.7"), Ok("rack-1/host.7".to_owned()));
    assert_eq!(namespace("unset"), Ok(String::new()));
    for wrong in ["a:b", "tensor", "memcuda", "a b", &"n".repeat(65)] {
        assert!(namespace(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_path_may_be_any_bytes_and_a_word_may_not() {
    let odd = OsStr::from_bytes(b"/tmp/caf\xe9");
    let path = Some(PathBuf::from(odd));
    assert_eq!(read("MEMCUDA_TRACE", odd).unwrap().trace, path);
    assert_eq!(read("MEMCUDA_LOG_FILE", odd).unwrap().log_file, path);
    assert_eq!(read("MEMCUDA_NAMES_FILE", odd).unwrap().names_file, path);
    assert_eq!(read("MEMCUDA_OOM_REPORT", odd).unwrap().oom_report, path);
    let keeper = read("MEMCUDA_KEEPER", odd).unwrap().keeper;
    assert_eq!(keeper, Keeper::Socket(odd.into()));
    for word in ["MEMCUDA_TORCH", "MEMCUDA_LIMIT", "MEMCUDA_NAMES"] {
        let message = read(word, odd).unwrap_err().to_string();
        assert!(message.contains("caf\u{fffd}"), "{message}");
    }
}

#[test]
fn a_name_that_is_misspelt_is_known_to_be_none() {
    for wrong in ["MEMCUDA_LMIT", "MEMCUDA_LOG_LEVEL", "MEMCUDA_"] {
        assert!(Config::is_unknown(wrong), "{wrong}");
    }
    for right in [
        "MEMCUDA_LIMIT",
        "MEMCUDA_SIM_MEMORY",
        "MEMCUDA_DOCTOR_MEMCUDA_LOG",
        "CUDA_VISIBLE_DEVICES",
    ] {
        assert!(!Config::is_unknown(right), "{right}");
    }
}

#[test]
fn stacks_are_of_a_trace() {
    let said = |trace: Option<&str>, stacks: &str| {
        let value = |name: &str| match name {
            "MEMCUDA_TRACE" => trace.map(OsString::from),
            "MEMCUDA_TRACE_STACKS" => Some(stacks.into()),
            _ => None,
        };
        Config::read(value).unwrap().without_effect()
    };
    let line = ["MEMCUDA_TRACE_STACKS has no effect without MEMCUDA_TRACE"];
    assert_eq!([said(None, "c"), said(Some("none"), "python")], [line; 2]);
    assert!(said(Some("f"), "c").is_empty() && said(None, "none").is_empty());
}

#[test]
fn who_lends_nothing_has_no_use_for_a_limit_or_names() {
    let said = |policy: &str| {
        let value = |name: &str| match name {
            "MEMCUDA_POLICY" => Some(policy.into()),
            "MEMCUDA_LIMIT" => Some("1GiB".into()),
            "MEMCUDA_NAMES" => Some("name=a".into()),
            "MEMCUDA_NAMES_FILE" => Some("/f".into()),
            _ => None,
        };
        Config::read(value).unwrap().without_effect()
    };
    let names: Vec<_> = said("track")
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(
        names,
        ["MEMCUDA_LIMIT", "MEMCUDA_NAMES", "MEMCUDA_NAMES_FILE"]
    );
    assert!(said("stitch").is_empty());
}

#[test]
fn no_rules_are_none() {
    assert_eq!(read("MEMCUDA_NAMES", "none"), Ok(Config::default()));
    assert_eq!(read("MEMCUDA_NAMES_FILE", "none"), Ok(Config::default()));
}
