-- Gives a hold back to this server, which has lost it, after a majority has said that it
-- stands. The line has no say.

local token, name, owner, kind, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local n, ttl, fence, slot = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], tonumber(ARGV[9])

load()
if redis.call('exists', TOMB) == 1 then return { 'withdrawn', micros } end
if held(token) or is_tail(token) or not admits(mode, n, slot) then return { 'done', micros } end
next_fence = function()
  if not meta.f or tonumber(fence) > tonumber(meta.f) then redis.call('hset', META, 'f', fence) end
  return fence
end
grant(token, { k = kind, m = mode, n = n, t = ttl, s = now, o = owner, i = slot }, ttl)
index(name)
return { 'done', micros }
