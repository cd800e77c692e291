-- Gives back what token holds and lets in who is next. With a tail the lock stays taken
-- for that many ms, by nobody.

local token, tail = ARGV[1], tonumber(ARGV[2])

load()
local h = held(token)
if not h then return { 'lost', micros } end
finish(token, h, tail)
if gap_is_due() then
  meta.gu = now + GAP
  redis.call('hset', META, 'gu', meta.gu)
end
promote()
return { 'done', micros }
