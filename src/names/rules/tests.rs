//! What rules accept, what they match, and what is said of the rest.

use super::*;

fn facts() -> Facts {
    Facts {
        pid: 4321,
        rank: Some("3".to_owned()),
        device: 1,
        n: 7,
    }
}

fn read(text: &str) -> Result<Rules> {
    Rules::read(Some(text), None, &facts())
}

fn file(text: &str) -> Result<Rules> {
    Ok(Rules(file::read(text, &facts())?))
}

fn find(rules: &Rules, bytes: u64, device: u32) -> Option<(u64, String)> {
    let asked = Asked {
        bytes,
        device,
        thread: &|| "loader 3".to_owned(),
        library: &|| "libnccl.so.2".to_owned(),
    };
    let found = rules.find(&asked)?;
    let facts = Facts {
        device,
        n: found.n,
        ..facts()
    };
    Some((found.n, found.rule.name(&facts).unwrap().to_string()))
}

const MIB: u64 = 1 << 20;

#[test]
fn the_first_rule_that_matches_gives_the_name() {
    let rules = read(
        "size=4MiB,name=small/{n}; device=1,size=8MiB..1GiB,nth=2..3,name=r{rank}/{device}/{n};\
         size=1MiB..,name=rest",
    )
    .unwrap();
    let named = |bytes, device| find(&rules, bytes, device).map(|(_, name)| name);
    assert_eq!(named(4 * MIB, 0).as_deref(), Some("small/1"));
    assert_eq!(named(4 * MIB, 1).as_deref(), Some("small/2"));
    assert_eq!(named(8 * MIB, 1).as_deref(), Some("rest"), "its first");
    assert_eq!(named(8 * MIB, 1).as_deref(), Some("r3/1/2"));
    assert_eq!(named(9 * MIB, 1).as_deref(), Some("r3/1/3"));
    // A name without {n} is one allocation's, unless nth says otherwise.
    assert_eq!(named(8 * MIB, 1), None);
    assert_eq!(named(MIB - 1, 0), None);
}

#[test]
fn what_came_to_nothing_leaves_its_number_to_the_next() {
    let rules = read("size=1MiB,name=one; size=2MiB,name=all/{n}").unwrap();
    let found = |bytes| {
        let asked = Asked {
            bytes,
            device: 0,
            thread: &String::new,
            library: &String::new,
        };
        rules.find(&asked)
    };
    found(MIB).unwrap().give_back();
    assert_eq!(found(MIB).map(|found| found.n), Some(1));
    assert!(found(MIB).is_none());
    let three = [(); 3].map(|()| found(2 * MIB).unwrap());
    three[1].give_back();
    three[0].give_back();
    assert_eq!([(); 3].map(|()| found(2 * MIB).unwrap().n), [1, 2, 4]);
}

#[test]
fn threads_and_libraries_match_by_pattern() {
    for (rule, matches) in [
        ("thread=loader *,name=a", true),
        ("thread=loader,name=a", false),
        ("library=libnccl.so*,name=a", true),
        ("library=*.so.*,name=a", true),
        ("library=*nccl*,thread=*3,name=a", true),
        ("library=libtorch*,name=a", false),
    ] {
        assert_eq!(
            find(&read(rule).unwrap(), 1, 0).is_some(),
            matches,
            "{rule}"
        );
    }
}

#[test]
fn line_and_file_say_the_same() {
    let line = read(
        "size=4096,name=w/{pid},dtype=f32,shape=32x32,mode=attach,read-only,zeroed=false,mismatch=unnamed,\
         wait=60",
    )
    .unwrap();
    let file = file(
        "# weights\n[[rule]]\nsize = 4096\nname = \"w/{pid}\"\ndtype = \"f32\"\nshape = [32, 32]\n\
         mode = 'attach'\nread-only = true\nzeroed = false\nmismatch = \"unnamed\"\nwait = 60\n",
    )
    .unwrap();
    let (line, file) = (&line.0[0], &file.0[0]);
    assert_eq!(
        (&line.when, &line.name, &line.what),
        (&file.when, &file.name, &file.what)
    );
    assert!(line.what.read_only && line.what.or_unnamed && !line.what.zeroed);
    assert_eq!(line.what.wait_s, Some(60));
    assert_eq!(
        (line.what.mode, line.what.shape.as_slice()),
        (Mode::Attach, &[32, 32][..])
    );
    assert_eq!(line.name(&facts()).unwrap().as_str(), "w/4321");
}

#[test]
fn no_rule_is_no_error() {
    for text in ["", " ; ;; "] {
        assert!(read(text).unwrap().is_empty());
    }
    assert!(file("").unwrap().is_empty() && file("# nothing\n").unwrap().is_empty());
}

#[test]
fn what_is_wrong_is_one_line_with_what_is_accepted() {
    for (text, says) in [
        ("size=4MiB", "rule 1: it has no name; accepted: name=TEXT"),
        (
            "name=a; size=lots,name=b",
            "rule 2: size=lots is not understood; accepted: SIZE",
        ),
        ("size=2MiB..1MiB,name=a", "size=2MiB..1MiB"),
        ("size=..,name=a", "size=.."),
        ("size=0,name=a", "size=0 "),
        ("nth=0,name=a", "nth=0"),
        ("device=-1,name=a", "device=-1"),
        ("name=a b", "names do not have"),
        ("name={host}", "{pid} {rank} {device} {n}"),
        ("name=a{", "name=a{"),
        ("name=a}", "name=a}"),
        ("name=cmd", "reserved"),
        ("name=a,name=b", "name is said twice"),
        (
            "name=a,colour=red",
            "\"colour\" is not known; accepted: size nth",
        ),
        (
            "name=a,bare",
            "\"bare\" is not understood; accepted: key=value",
        ),
        ("name=a,dtype=float", "accepted: f64 f32"),
        ("name=a,shape=2x2", "a shape and no dtype"),
        ("name=a,dtype=f32,shape=2x0", "shape=2x0"),
        ("name=a,dtype=f32,shape=2x-2", "shape=2x-2"),
        (
            "name=a,dtype=f32,shape=9223372036854775807x9",
            "larger than an address",
        ),
        (
            "name=a,dtype=f32,shape=2x2,size=17",
            "shape=2x2 of f32 has 16 bytes",
        ),
        ("name=a,mode=open", "create-or-attach, create, attach"),
        ("name=a,read-only=yes", "accepted: true, false"),
        (
            "name=a,wait=ever",
            "wait=ever is not understood; accepted: SECONDS",
        ),
        (
            "name=a,backend=cuda_ipc,read-only",
            "backend=cuda_ipc does not go with",
        ),
        (
            "name=a,mode=create,read-only",
            "read-only does not go with mode=create",
        ),
        ("name=a,mismatch=ignore", "error, unnamed"),
        ("name=\u{1b}[2J\n", "names do not have"),
        ("\u{1b}[2J", "is not understood"),
    ] {
        let said = read(text).unwrap_err().to_string();
        assert!(said.starts_with("MEMCUDA_NAMES: rule "), "{said}");
        assert!(said.contains(says), "{text}: {said}");
        assert!(
            said.len() < 400 && !said.contains(|c: char| c.is_control()),
            "{said}"
        );
    }
}

#[test]
fn a_wrong_file_is_told_by_its_place() {
    for (text, says) in [
        ("[[rule]]\nname = \n", "line 2"),
        ("rule = 1\n", "[[rule]]"),
        ("rule = [1]\n", "[[rule]]"),
        ("[[rules]]\nname='a'\n", "[[rule]]"),
        ("[[rule]]\nname = 'a'\nsize = 1.5\n", "size: accepted"),
        (
            "[[rule]]\nname = 'a'\n[[rule]]\nsize = 'x'\nname='b'",
            "rule 2: size=x",
        ),
        ("[[rule]]\nname = 'a'\nshape = ['2']\n", "shape: accepted"),
    ] {
        let said = file(text).unwrap_err().to_string();
        assert!(
            said.contains(says) && !said.contains('\n'),
            "{text}: {said}"
        );
    }
    let absent = Rules::read(None, Some(Path::new("/no/such/rules.toml")), &facts());
    let said = absent.unwrap_err().to_string();
    assert!(
        said.starts_with("MEMCUDA_NAMES_FILE=/no/such/rules.toml: "),
        "{said}"
    );
}

#[test]
fn a_rank_is_needed_only_by_who_names_it() {
    let nobody = Facts {
        rank: None,
        ..facts()
    };
    assert!(Rules::read(Some("name=w/{device}"), None, &nobody).is_ok());
    let said = Rules::read(Some("name=w/{rank}"), None, &nobody).unwrap_err();
    assert!(said.to_string().contains("OMPI_COMM_WORLD_RANK"), "{said}");
}

#[test]
fn what_is_no_file_of_rules_is_neither_waited_for_nor_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, long) = (folder.path().join("pipe"), folder.path().join("long"));
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let sparse = std::fs::File::create(&long).unwrap();
    sparse.set_len(1 << 40).unwrap();
    let no_file =
        "is no file; accepted: a TOML file, which is read more than once: no pipe, such as <(...)";
    for (path, why) in [
        (pipe.as_path(), no_file),
        (Path::new("/dev/zero"), no_file),
        (&long, "it is too long; accepted: up to 1048576 bytes"),
    ] {
        let error = Rules::read(None, Some(path), &facts()).unwrap_err();
        let line = format!("MEMCUDA_NAMES_FILE={}: {why}", path.display());
        assert_eq!(error.to_string(), line);
    }
}
