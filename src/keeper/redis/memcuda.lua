#!lua name=memcuda
-- What the keeper does in Redis, each step whole or not at all. The keeper sends
-- this text by EVAL, or calls these as functions where an administrator loaded
-- the file: redis-cli -x FUNCTION LOAD REPLACE < memcuda.lua
--
-- Whoever writes says under which term it owns the keys (KEYS[1], a hash that
-- expires). A term is never used twice and ends with the connection it was
-- claimed over, so what arrives late, or from another keeper, changes nothing
-- and is answered `lost`.

local function owned(keys, args)
  return redis.call('HGET', keys[1], 'term') == args[1]
end

local function kind(key)
  return redis.call('TYPE', key).ok
end

-- The keeper's own lists and hashes are skipped where somebody made something else of
-- them: no command waits for that.
local function holds(key, what)
  local there = kind(key)
  return there == 'none' or there == what
end

-- KEYS owner; ARGV keeper, started, milliseconds to live, then all fields of
-- the owner. A keeper's later process takes over from its earlier one.
local function claim(keys, args)
  local there = redis.call('HMGET', keys[1], 'keeper', 'started', 'host', 'socket')
  if there[1] and there[1] ~= args[1] then
    return {'taken', there[3] or '', there[4] or ''}
  end
  if there[1] and tonumber(there[2]) > tonumber(args[2]) then
    return {'superseded'}
  end
  redis.call('DEL', keys[1])
  redis.call('HSET', keys[1], unpack(args, 4))
  redis.call('PEXPIRE', keys[1], args[3])
  return {'ours'}
end

-- KEYS owner, index; ARGV term, milliseconds to live, cursor, prefix of hashes.
-- Answers the next cursor and the names among the next hundred or so whose
-- hash somebody took away.
local function beat(keys, args)
  if not owned(keys, args) then return {'lost'} end
  local page = redis.call('SSCAN', keys[2], args[3], 'COUNT', 100)
  local answer = {'ok', page[1]}
  for _, name in ipairs(page[2]) do
    if redis.call('EXISTS', args[4] .. name) == 0 then answer[#answer + 1] = name end
  end
  redis.call('PEXPIRE', keys[1], args[2])
  return answer
end

-- A path key (of the second protocol) is ours if it is the text that we wrote.
local function our_path(key)
  if kind(key) ~= 'string' then return false end
  local read, value = pcall(cjson.decode, redis.call('GET', key))
  return read and type(value) == 'table' and type(value.address) == 'table'
    and value.address.type == 'memcuda'
end

-- KEYS owner, hash, index and, for a name that has one, path key and paths;
-- ARGV term, name, generation, text for the path key, then all fields. Answers
-- `first` where there was no index.
local function publish(keys, args)
  if not owned(keys, args) then return 'lost' end
  local there = kind(keys[2])
  if there ~= 'none' then
    local generation = there == 'hash' and redis.call('HGET', keys[2], 'generation')
    if not generation then return 'foreign' end
    if generation ~= args[3] then redis.call('DEL', keys[2]) end
  end
  local first = kind(keys[3]) == 'none'
  redis.call('HSET', keys[2], unpack(args, 5))
  redis.call('SADD', keys[3], args[2])
  if keys[4] and (kind(keys[4]) == 'none' or our_path(keys[4])) then
    redis.call('SET', keys[4], args[4])
    redis.call('SADD', keys[5], args[2])
  end
  return first and 'first' or 'ok'
end

-- A hash without a generation is somebody else's and stays.
local function forget(name, hash, index, path, paths)
  if kind(hash) == 'hash' and redis.call('HEXISTS', hash, 'generation') == 1 then
    redis.call('DEL', hash)
  end
  redis.call('SREM', index, name)
  if redis.call('SREM', paths, name) == 1 and our_path(path) then redis.call('DEL', path) end
end

-- KEYS owner, hash, index, path key, paths; ARGV term, name.
local function remove(keys, args)
  if not owned(keys, args) then return 'lost' end
  forget(args[2], keys[2], keys[3], keys[4], keys[5])
  return 'ok'
end

-- KEYS owner, index, paths; ARGV term, prefix of hashes, prefix of path keys.
-- Some names go at a time, the owner with the last of them; answers how many
-- are left.
local function release(keys, args)
  if not owned(keys, args) then return -1 end
  for _, name in ipairs(redis.call('SRANDMEMBER', keys[2], 500)) do
    forget(name, args[2] .. name, keys[2], args[3] .. name, keys[3])
  end
  local left = redis.call('SCARD', keys[2])
  if left == 0 then redis.call('DEL', keys[1], keys[3]) end
  return left
end

-- KEYS owner, queue, taken, making, tries, notes; ARGV term, the end of the
-- queue that is consumed, first. What was taken and not answered goes back to
-- where it came from, the oldest to the very end; `first` says that it was an
-- earlier process that took it. That counts, once for what was sent several times,
-- unless the command still waited to be begun.
local function resume(keys, args)
  if not owned(keys, args) then return -1 end
  local back, counted = 0, {}
  local first = args[3] == '1'
  for _, list in ipairs(first and {keys[3], keys[4]} or {keys[3]}) do
    for _, body in ipairs(redis.call('LRANGE', list, 0, -1)) do
      redis.call(args[2] == 'RIGHT' and 'RPUSH' or 'LPUSH', keys[2], body)
      local digest = redis.sha1hex(body)
      local begun = list == keys[3]
        or holds(keys[6], 'hash') and redis.call('HEXISTS', keys[6], digest) == 1
      if first and begun and not counted[digest] and holds(keys[5], 'hash') then
        redis.call('HINCRBY', keys[5], digest, 1)
        counted[digest] = true
      end
      back = back + 1
    end
    redis.call('DEL', list)
  end
  return back
end

local function set_aside(key, record)
  if not holds(key, 'list') then return end
  redis.call('LPUSH', key, record)
  redis.call('LTRIM', key, 0, 999)
end

-- KEYS owner, queue, taken, tries, notes, aside; ARGV term, the end of the queue
-- that is consumed, most bytes, seconds of the epoch. What was moved to `taken`:
-- one command or none; one that is too long is set aside, and only its beginning
-- and its end are answered.
local function take(keys, args)
  if not owned(keys, args) then
    redis.call('LMOVE', keys[3], keys[2], 'LEFT', args[2])
    return {'lost'}
  end
  local body = redis.call('LINDEX', keys[3], 0)
  if not body then return {'none'} end
  if #body > tonumber(args[3]) then
    set_aside(keys[6], cjson.encode({why = 'the message is too long', bytes = #body,
      at = tonumber(args[4]), queue = keys[2], message = string.sub(body, 1, 200)}))
    redis.call('LPOP', keys[3])
    return {'long', #body, string.sub(body, 1, 2048), string.sub(body, -2048)}
  end
  local digest = redis.sha1hex(body)
  local function of(key) return holds(key, 'hash') and redis.call('HGET', key, digest) end
  return {'command', body, of(keys[4]) or '0', of(keys[5]) or ''}
end

-- KEYS owner, taken, making; ARGV term, command: it takes long, others pass by.
local function defer(keys, args)
  if not owned(keys, args) then return 'lost' end
  if redis.call('LREM', keys[2], 1, args[2]) == 0 then return 'gone' end
  redis.call('LPUSH', keys[3], args[2])
  return 'ok'
end

-- KEYS owner, notes; ARGV term, command, note. What is remembered of a command
-- until it is answered, by whoever takes it up after this process.
local function note(keys, args)
  if not owned(keys, args) then return 'lost' end
  if holds(keys[2], 'hash') then
    redis.call('HSETNX', keys[2], redis.sha1hex(args[2]), args[3])
  end
  return 'ok'
end

-- KEYS owner, taken or making, tries, notes, aside and, where there is one, the
-- list for the answer; ARGV term, command, sure, push, answer, milliseconds that
-- an answer waits, record to set aside or nothing. Answered and done with in one
-- step. Without `sure` it may have been answered before, and is only if it is
-- still there. What needs memory comes first: refused, nothing has changed.
local function finish(keys, args)
  if not owned(keys, args) then return 'lost' end
  if args[3] ~= '1' and not redis.call('LPOS', keys[2], args[2]) then return 'gone' end
  local record, answered = args[7], false
  if keys[6] then
    local there = kind(keys[6])
    if there == 'none' or there == 'list' then
      redis.call(args[4], keys[6], args[5])
      redis.call('PEXPIRE', keys[6], args[6])
      answered = true
    elseif record == '' then
      record = cjson.encode({why = 'the reply key holds no list', key = keys[6],
        answer = args[5], message = string.sub(args[2], 1, 200)})
    end
  end
  if record ~= '' then set_aside(keys[5], record) end
  if holds(keys[2], 'list') then redis.call('LREM', keys[2], -1, args[2]) end
  local digest = redis.sha1hex(args[2])
  for _, key in ipairs({keys[3], keys[4]}) do
    if holds(key, 'hash') then redis.call('HDEL', key, digest) end
  end
  return answered and 'answered' or 'ok'
end

-- `frees` functions are called when Redis is full, too.
local function register(name, callback, frees)
  redis.register_function({function_name = 'memcuda_' .. name, callback = callback,
    flags = frees and {'allow-oom'} or {}})
end

-- Grows with every change of this file that another keeper would notice.
register('edition', function() return 3 end, true)
register('claim', claim)
register('beat', beat, true)
register('publish', publish)
register('remove', remove, true)
register('release', release, true)
register('resume', resume)
register('take', take)
register('defer', defer)
register('note', note)
register('finish', finish)
