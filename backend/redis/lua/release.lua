-- Gives back what token holds and lets in who is next. With a tail the lock stays taken
-- for that many ms, by nobody.

local token, tail = ARGV[1], tonumber(ARGV[2])

load()
local h = held(token)
if not h then return { 'lost', micros } end
finish(token, h, tail)
if waiters > 0 and meta.fs and now - meta.fs < FOREIGN_SEEN and now - (tonumber(meta.gu) or 0) >= BETWEEN_GAPS then
  meta.gu = now + GAP -- or programs that poll would never get in
  redis.call('hset', META, 'gu', meta.gu)
end
promote()
return { 'done', micros }
