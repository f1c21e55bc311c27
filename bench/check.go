package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gradnic/bench/flow"
)

// longestFrame is what the rig's link takes, of an MTU of 1500.
const longestFrame = 1514

// names are the contestants that there are.
var names = []string{"lane", "in-kernel", "rings", "asavie", "asavie-example", "c", "udp", "packet", "testpmd", "kernel"}

// checkTurns refuses what cannot be measured; zero values have defaults.
func checkTurns(rounds int, run time.Duration, sizes []int) error {
	if rounds < 0 {
		return fmt.Errorf("%d rounds: at least one is needed", rounds)
	}
	if run < 0 {
		return fmt.Errorf("turns of %v: must be above 0", run)
	}
	for _, size := range sizes {
		if size < flow.ShortestFrame || size > longestFrame {
			return fmt.Errorf("frames of %d bytes: legal are %d to %d", size, flow.ShortestFrame, longestFrame)
		}
	}
	return nil
}

func checkNames(devices ...string) error {
	for _, d := range devices {
		if !slices.Contains(names, d) {
			return fmt.Errorf("no contestant is named %q: legal are %s", d, strings.Join(names, ", "))
		}
	}
	return nil
}

// Check refuses what cannot be measured.
func (o *EngineOptions) Check() error {
	if o.Patience < 0 {
		return fmt.Errorf("a patience of %v", o.Patience)
	}
	return checkTurns(o.Rounds, o.Run, o.Sizes)
}

// Check refuses what cannot be measured.
func (o *ScaleOptions) Check() error { return checkTurns(o.Rounds, o.Run, nil) }

// Check refuses what cannot be measured.
func (o *CompareOptions) Check() error {
	if err := checkTurns(o.Rounds, o.Run, o.Sizes); err != nil {
		return err
	}
	if o.Against != "" {
		if err := checkNames(o.Against); err != nil {
			return err
		}
	}
	return checkNames(o.Devices...)
}

// Check refuses what cannot be measured.
func (o *NDROptions) Check() error {
	if err := checkTurns(o.Rounds, 0, o.Sizes); err != nil {
		return err
	}
	if err := o.Search.Check(); err != nil {
		return err
	}
	return checkNames(o.Devices...)
}
