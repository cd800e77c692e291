package cmd

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dlock/dlock/backend"
)

// metric is one number of each lock; no text where it is not known.
type metric struct {
	name, help string
	value      func(backend.Status) string
}

var metrics = []metric{
	{"dlock_lock_held", "Whether the lock is held.", held},
	{"dlock_lock_holders", "How many hold the lock.", holders},
	{"dlock_lock_age_seconds", "How long the oldest hold has lasted.", oldest},
	{"dlock_lock_ttl_left_seconds", "When the first lease of the lock ends, unless it is renewed.", leastLeft},
	{"dlock_lock_waiters", "How many wait for the lock.", func(s backend.Status) string { return strconv.Itoa(len(s.Waiters)) }},
	{"dlock_lock_fence", "The last fencing token that is known.", fence},
	{"dlock_lock_problems", "How many odd things there are about the lock.", func(s backend.Status) string { return strconv.Itoa(len(problems(s))) }},
}

// printPrometheus prints the text exposition format, for the textfile collector of
// node_exporter.
func printPrometheus(out io.Writer, v view) error {
	var b bytes.Buffer
	service := fmt.Sprintf(`service="%s",namespace="%s"`, labelValue(v.limits.Address), labelValue(v.namespace))
	head(&b, "dlock_up", "Whether the lock service answered.")
	fmt.Fprintf(&b, "dlock_up{%s} %s\n", service, truth(v.err == nil))
	for _, m := range metrics {
		begun := false
		for _, s := range v.list {
			value := m.value(s)
			if value == "" {
				continue
			}
			if !begun {
				head(&b, m.name, m.help)
				begun = true
			}
			fmt.Fprintf(&b, "%s{%s,name=\"%s\"} %s\n", m.name, service, labelValue(s.Name), value)
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

func head(b *bytes.Buffer, name, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s gauge\n", name, help, name)
}

// labelValue escapes what the format does not allow in a label.
func labelValue(s string) string {
	return strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`).Replace(strings.ToValidUTF8(s, "\ufffd"))
}

func truth(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func held(s backend.Status) string {
	if s.Err != nil {
		return ""
	}
	return truth(len(s.Holders) > 0)
}

func holders(s backend.Status) string {
	if s.Err != nil {
		return ""
	}
	return strconv.Itoa(len(s.Holders))
}

func oldest(s backend.Status) string {
	age := -1.0
	for _, h := range s.Holders {
		age = max(age, h.Held.Seconds())
	}
	if age < 0 {
		return ""
	}
	return decimal(age)
}

func leastLeft(s backend.Status) string {
	text, least := "", 0.0
	for _, h := range s.Holders {
		if left := h.Left.Seconds(); h.Leased && (text == "" || left < least) {
			text, least = decimal(left), left
		}
	}
	return text
}

func fence(s backend.Status) string {
	last := s.Fence
	for _, h := range s.Holders {
		last = max(last, h.Fence)
	}
	if last == 0 {
		return ""
	}
	return strconv.FormatUint(last, 10)
}

// decimal prints seconds to the millisecond.
func decimal(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }
