package bench

import (
	"context"
	"errors"
	"fmt"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
)

// contestants finds the ones of these names; what is not installed is left out with a note in the report.
func contestants(ctx context.Context, names, self []string, dir string, r *report.Report) ([]contestant, error) {
	argv := func(kind string) []string { return append(self[:len(self):len(self)], kind) }
	var all []contestant
	for _, name := range names {
		c := contestant{name: name}
		switch name {
		case "lane", "in-kernel", "rings", "asavie", "asavie-example", "packet":
			c.argv = argv(name)
		case "udp":
			c.argv, c.toKernel = argv(name), true
		case "kernel":
			c.ceiling = gen.OpenBounce
		case "c":
			path, err := peers.BuildC(ctx, dir)
			if err != nil {
				return nil, err
			}
			c.argv, c.c = []string{path}, true
		case "testpmd":
			if err := peers.HaveTestpmd(); err != nil {
				if !errors.Is(err, peers.ErrNotInstalled) {
					return nil, err
				}
				r.Notes = append(r.Notes, err.Error())
				continue
			}
			c.testpmd = true
		default:
			return nil, fmt.Errorf("contestant %q", name) // Check knows them all
		}
		all = append(all, c)
	}
	return all, nil
}
