//! A connection to the server, with a limit on every wait, and the steps of
//! `memcuda.lua` over it. An error of the connection ends it; an error that the
//! server answers does not.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use redis::{Cmd, Connection, ErrorKind, IntoConnectionInfo, RedisError, ServerErrorKind, Value};

use crate::error::{Error, Result as Checked};

const LIBRARY: &str = include_str!("memcuda.lua");
/// What `memcuda_edition` answers of this text.
const EDITION: i64 = 3;
/// Makes a script of the library: what it registers is called by name.
const CALLED: &str = "local todo = {}
local redis = setmetatable({register_function = function(it)
  todo[it.function_name] = it.callback
end}, {__index = redis})
";
const CALL: &str = "return todo[ARGV[1]](KEYS, {unpack(ARGV, 2)})\n";

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// A server, by the address that a user wrote.
#[derive(Clone)]
pub struct Server {
    client: redis::Client,
    script: std::sync::Arc<(String, redis::Script)>,
}

impl Server {
    /// From an address (`redis://[user:password@]host[:port][/db]`, `rediss://`
    /// for TLS, `redis+unix:///path`); connects to nothing yet.
    pub fn new(address: &str) -> Checked<Self> {
        let wrong = |error: RedisError| {
            // The address itself may hold a password.
            let why = error.to_string();
            Error::new(format!(
                "the address of the Redis server is not understood ({why}); accepted: \
                 redis://[USER:PASSWORD@]HOST[:PORT][/DB], rediss://..., redis+unix:///SOCKET"
            ))
        };
        let client = address.into_connection_info().and_then(|address| {
            // The server need not know what library this is, nor grant that it is told.
            let settings = address.redis_settings().clone().set_skip_set_lib_name();
            redis::Client::open(address.set_redis_settings(settings))
        });
        let client = client.map_err(wrong)?;
        let body = LIBRARY.split_once('\n').map_or("", |(_, body)| body);
        let text = format!("{CALLED}{body}{CALL}");
        let script = redis::Script::new(&text);
        Ok(Self {
            client,
            script: std::sync::Arc::new((text, script)),
        })
    }

    /// Connects, with a limit on the time it takes.
    pub fn connect(&self) -> Result<Link, Trouble> {
        let connection = self.client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        let mut link = Link {
            connection,
            script: self.script.clone(),
            functions: false,
            skips: false,
        };
        link.functions = link.has_functions()?;
        Ok(link)
    }
}

impl fmt::Display for Server {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client.get_connection_info().addr().fmt(f)
    }
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The connection is of no use any more; nothing is known of the request.
    Lost(String),
    /// The server refuses, and has changed nothing.
    Refused(String),
}

/// By what word a refusal begins that is over by itself, or once somebody has seen to the
/// server: it is full, a replica, busy, not up yet.
const PASSING: [&str; 12] = [
    "OOM",
    "READONLY",
    "LOADING",
    "MISCONF",
    "BUSY",
    "MASTERDOWN",
    "NOREPLICAS",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "NOTBUSY",
    "NOAUTH",
    "UNKILLABLE",
];

impl Trouble {
    /// Is it worth to try the same again?
    pub fn passes(&self) -> bool {
        let Self::Refused(why) = self else {
            return true;
        };
        let mut words = why.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        // Before Redis 7 the error of a script's command is in the script's own.
        let within = |word: &str| {
            word.strip_prefix('-')
                .is_some_and(|it| PASSING.contains(&it))
        };
        PASSING.contains(&first) || (first == "ERR" && words.any(within))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Lost(why) | Self::Refused(why)) = self;
        // One line, whatever a server says.
        f.write_str(&why.escape_debug().take(200).collect::<String>())
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        let refused = matches!(
            error.kind(),
            ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed
        );
        match error.detail() {
            _ if error.is_timeout() => {
                Self::Lost(format!("no answer within {} s", PATIENCE.as_secs()))
            }
            _ if !refused => Self::Lost(error.to_string()),
            Some(detail) => Self::Refused(match error.code() {
                Some(code) => format!("{code} {detail}"),
                None => format!("{}: {detail}", error.category()),
            }),
            None => Self::Refused(error.to_string()),
        }
    }
}

/// One call of a function of `memcuda.lua`.
#[derive(Debug, Clone)]
pub struct Step {
    /// Of which, without its `memcuda_`.
    pub name: &'static str,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Step {
    /// By the function's name, without its `memcuda_`.
    pub fn new<const N: usize>(name: &'static str, keys: [String; N]) -> Self {
        Self {
            name,
            keys: keys.into(),
            arguments: Vec::new(),
        }
    }

    /// One more key.
    pub fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    /// One more argument.
    pub fn arg(mut self, argument: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// How the next list element is moved (`BLMOVE`).
pub struct Move<'a> {
    /// From this list,
    pub queue: &'a str,
    /// from its end, `LEFT` or `RIGHT`,
    pub end: &'a str,
    /// to the left of this one,
    pub taken: &'a str,
    /// and so long is waited for one.
    pub patience: Duration,
}

/// A connection.
pub struct Link {
    connection: Connection,
    script: std::sync::Arc<(String, redis::Script)>,
    functions: bool,
    /// Does the server let us keep it from answering?
    skips: bool,
}

impl Link {
    /// Takes a step.
    pub fn call(&mut self, step: &Step) -> Result<Value, Trouble> {
        let mut answers = self.batch(std::slice::from_ref(step))?;
        answers.pop().unwrap_or(Ok(Value::Nil))
    }

    /// Takes steps in their order, with one wait for all.
    pub fn batch(&mut self, steps: &[Step]) -> Result<Vec<Result<Value, Trouble>>, Trouble> {
        let mut bytes = Vec::new();
        for step in steps {
            bytes.extend(self.short(step).get_packed_command());
        }
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        self.connection.send_packed_command(&bytes)?;
        let mut answers = Vec::with_capacity(steps.len());
        for _ in steps {
            answers.push(answer(self.connection.recv_response())?);
        }
        answers
            .into_iter()
            .zip(steps)
            .map(|(answer, step)| match answer {
                Answer::Unknown => self.long(step),
                Answer::Refused(trouble) => Ok(Err(trouble)),
                Answer::Value(value) => Ok(Ok(value)),
            })
            .collect()
    }

    /// Moves the next element, waiting for one, and takes a step then, however
    /// that went. The server is told to keep the element to itself, so that its
    /// length is nobody's wish: the step says what is to be seen of it.
    pub fn move_then(&mut self, next: &Move<'_>, step: &Step) -> Result<Value, Trouble> {
        self.check_skip()?;
        let mut bytes = silence();
        let mut blmove = redis::cmd("BLMOVE");
        blmove.arg(next.queue).arg(next.taken);
        blmove.arg(next.end).arg("LEFT");
        bytes.extend(blmove.arg(next.patience.as_secs_f64()).get_packed_command());
        bytes.extend(self.short(step).get_packed_command());
        let limit = Some(next.patience + PATIENCE);
        self.connection.set_read_timeout(limit)?;
        self.connection.send_packed_command(&bytes)?;
        let answer = answer(self.connection.recv_response());
        self.connection.set_read_timeout(Some(PATIENCE))?;
        match answer? {
            Answer::Value(value) => Ok(value),
            Answer::Refused(trouble) => Err(trouble),
            Answer::Unknown => self.long(step)?,
        }
    }

    /// Why [`Link::move_then`] moves nothing and does not wait, as far as it can be told
    /// without taking an element; nothing is known where the server would do it.
    pub fn refuses_move(&mut self, next: &Move<'_>) -> Result<Option<String>, Trouble> {
        let mut blmove = redis::cmd("BLMOVE");
        blmove.arg(next.queue).arg(next.taken);
        // So long nobody waits: that is looked at behind all that may be refused.
        match self.ask::<Value>(blmove.arg(next.end).arg("LEFT").arg(-1)) {
            Err(Trouble::Refused(why)) if !why.contains("timeout is negative") => {
                return Ok(Some(format!("BLMOVE is refused: {why}")));
            }
            Err(lost @ Trouble::Lost(_)) => return Err(lost),
            _ => {}
        }
        for key in [next.queue, next.taken] {
            let kind: String = self.ask(redis::cmd("TYPE").arg(key))?;
            if kind != "none" && kind != "list" {
                return Ok(Some(format!("{key} is no list but a {kind}")));
            }
        }
        Ok(None)
    }

    /// Does the server let us keep it from answering? Without that right the
    /// answers of [`Link::move_then`] would be mistaken for each other.
    fn check_skip(&mut self) -> Result<(), Trouble> {
        if self.skips {
            return Ok(());
        }
        let mut bytes = silence();
        bytes.extend(redis::cmd("PING").get_packed_command());
        bytes.extend(redis::cmd("ECHO").arg("memcuda").get_packed_command());
        self.connection.send_packed_command(&bytes)?;
        match answer(self.connection.recv_response())? {
            Answer::Value(Value::BulkString(text)) if text == b"memcuda" => {
                self.skips = true;
                Ok(())
            }
            Answer::Refused(trouble) => Err(trouble),
            _ => Err(Trouble::Lost("CLIENT REPLY SKIP is not served".to_owned())),
        }
    }

    /// Any other command.
    pub fn ask<T: redis::FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Trouble> {
        Ok(command.query(&mut self.connection)?)
    }

    /// Many hashes, each with all its fields as text. A key of another type is somebody
    /// else's, and has none.
    pub fn hashes(
        &mut self,
        keys: impl Iterator<Item = String>,
    ) -> Result<Vec<HashMap<String, String>>, Trouble> {
        type Hash = HashMap<Vec<u8>, Vec<u8>>;
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.cmd("HGETALL").arg(key);
        }
        let answers: Vec<redis::RedisResult<Hash>> =
            pipeline.ignore_errors().query(&mut self.connection)?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let texts = |hash: Hash| hash.into_iter().map(|(field, it)| (text(field), text(it)));
        let read = |answer: redis::RedisResult<Hash>| match answer {
            Ok(hash) => Ok(texts(hash).collect()),
            Err(error) if error.code() == Some("WRONGTYPE") => Ok(HashMap::new()),
            Err(error) => Err(error.into()),
        };
        answers.into_iter().map(read).collect()
    }

    /// Has an administrator loaded the library, so that no script need be sent?
    fn has_functions(&mut self) -> Result<bool, Trouble> {
        match self.ask::<i64>(redis::cmd("FCALL").arg("memcuda_edition").arg(0)) {
            Ok(edition) => Ok(edition == EDITION),
            Err(Trouble::Refused(_)) => Ok(false),
            Err(lost) => Err(lost),
        }
    }

    /// As a function, or by the digest of the script.
    fn short(&self, step: &Step) -> Cmd {
        let name = format!("memcuda_{}", step.name);
        let mut command;
        if self.functions {
            command = redis::cmd("FCALL");
            command.arg(name).arg(step.keys.len()).arg(&step.keys);
        } else {
            command = redis::cmd("EVALSHA");
            command.arg(self.script.1.get_hash()).arg(step.keys.len());
            command.arg(&step.keys).arg(name);
        }
        command.arg(&step.arguments);
        command
    }

    /// With the text of the script, which the server has forgotten.
    fn long(&mut self, step: &Step) -> Result<Result<Value, Trouble>, Trouble> {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script.0).arg(step.keys.len());
        command.arg(&step.keys);
        command.arg(format!("memcuda_{}", step.name));
        let packed = command.arg(&step.arguments).get_packed_command();
        self.connection.send_packed_command(&packed)?;
        match answer(self.connection.recv_response())? {
            Answer::Value(value) => Ok(Ok(value)),
            Answer::Refused(trouble) => Ok(Err(trouble)),
            Answer::Unknown => Ok(Err(Trouble::Refused("NOSCRIPT".to_owned()))),
        }
    }
}

/// Keeps the server from answering what comes next.
fn silence() -> Vec<u8> {
    let mut command = redis::cmd("CLIENT");
    command.arg("REPLY").arg("SKIP").get_packed_command()
}

enum Answer {
    Value(Value),
    Refused(Trouble),
    /// The server does not know the script.
    Unknown,
}

fn answer(received: Result<Value, RedisError>) -> Result<Answer, Trouble> {
    let error = match received {
        Ok(Value::ServerError(error)) => RedisError::from(error),
        Ok(value) => return Ok(Answer::Value(value)),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => Ok(Answer::Unknown),
        _ => match Trouble::from(error) {
            trouble @ Trouble::Refused(_) => Ok(Answer::Refused(trouble)),
            lost @ Trouble::Lost(_) => Err(lost),
        },
    }
}
