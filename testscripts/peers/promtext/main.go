// Promtext reads Prometheus' text format from stdin with Prometheus' own parser, and
// prints it as JSON: a list of {"metric", "labels", "value"}. It exits with 1 for what
// Prometheus would refuse.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

type sample struct {
	Metric string            `json:"metric"`
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promtext:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(in)
	if err != nil {
		return err
	}
	var list []sample
	for _, name := range slices.Sorted(maps.Keys(families)) {
		f := families[name]
		if f.GetHelp() == "" {
			return fmt.Errorf("%s has no help", name)
		}
		for _, m := range f.GetMetric() {
			s := sample{Metric: name, Labels: map[string]string{}, Value: m.GetGauge().GetValue()}
			for _, l := range m.GetLabel() {
				s.Labels[l.GetName()] = l.GetValue()
			}
			list = append(list, s)
		}
	}
	return json.NewEncoder(out).Encode(list)
}
