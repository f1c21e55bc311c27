package demo

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestInterrupted(t *testing.T) {
	left := errors.New("namespace x is left")
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nothing else":  {nil, "interrupted; everything that was made is removed"},
		"a worker":      {fmt.Errorf("rank 3: job 0: %w", context.Canceled), "interrupted; everything that was made is removed"},
		"two workers":   {errors.Join(fmt.Errorf("rank 3: %w", context.Canceled), fmt.Errorf("rank 4: 7 packets: %w: %w", context.Canceled, context.DeadlineExceeded)), "interrupted; everything that was made is removed"},
		"and a remnant": {errors.Join(fmt.Errorf("rank 3: %w", context.Canceled), left), "interrupted\nnamespace x is left"},
		"a remnant":     {left, "interrupted\nnamespace x is left"},
	} {
		if got := interrupted(c.err); got.Error() != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
