package cmd

import (
	"fmt"
	"strconv"
)

// count is a flag value: a whole number in plain decimal digits.
type count int

// String prints the value for help texts.
func (c *count) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.Itoa(int(*c))
}

// Type names the value in help texts.
func (c *count) Type() string { return "N" }

// Set parses the flag's argument.
func (c *count) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return fmt.Errorf("%q is no whole number", s)
	}
	*c = count(n)
	return nil
}
