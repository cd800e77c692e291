package runner

import (
	"fmt"
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

// orders are what the guard must know. Each message to it is one line with all of
// them, which replaces what it knew before.
type orders struct {
	group bool             // the command leads a group of its own
	pid   int              // the command's, 0 before it was started
	start uint64           // of the command, as in proc.Process
	since uint64           // no process of the command started earlier
	kill  boottime.Instant // when to kill although we live; zero: never
	mark  string
}

const ordersFormat = "%t %d %d %d %d %q"

// ticks returns a moment as proc.Process.Start counts: all Linux ports of Go have
// 100 ticks a second there.
func ticks(i boottime.Instant) uint64 { return uint64(i) / uint64(time.Second/100) }

func (o orders) line() []byte {
	return fmt.Appendf(nil, ordersFormat+"\n", o.group, o.pid, o.start, o.since, int64(o.kill), o.mark)
}

func parseOrders(line string) (orders, error) {
	var o orders
	var kill int64
	_, err := fmt.Sscanf(line, ordersFormat, &o.group, &o.pid, &o.start, &o.since, &kill, &o.mark)
	o.kill = boottime.Instant(kill)
	return o, err
}
