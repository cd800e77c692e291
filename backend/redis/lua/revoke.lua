-- Ends the one hold whose token begins with prefix: at once if nothing runs under it or if
-- immediately is '1', else it is marked, and stays until its run has stopped.

local prefix, immediately = ARGV[1], ARGV[2] == '1'

load()
if S.kind == 'foreign' then return { 'foreign', micros } end
local found
for _, h in ipairs(holders(0)) do
  if string.sub(h[1], 1, #prefix) == prefix then
    if found then return { 'several', micros } end
    found = h
  end
end
if not found then return { 'lost', micros } end
local token = found[1]
local h = holder(token) or { m = found[3], n = found[4] }
if immediately or h.d or h.k == 'detached' then
  h.r = true -- no tail
  finish(token, h, 0)
  promote()
else
  touch(META)
  h.r = true
  store_holder(token, h)
  found[8] = found[8] .. 'r'
end
return { 'done', micros, found }
