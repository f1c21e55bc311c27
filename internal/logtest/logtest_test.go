package logtest

import (
	"slices"
	"testing"
	"time"
)

func TestLines(t *testing.T) {
	var l Lines
	l.Logger().Debug("not this")
	l.Logger().Info("first", "n", 1)
	l.Logger().Warn("second", "n", 2)
	for _, x := range []struct {
		words []string
		lines int
	}{{nil, 2}, {[]string{"first"}, 1}, {[]string{"n=2", "WARN"}, 1}, {[]string{"n=2", "first"}, 0}, {[]string{"not this"}, 0}} {
		if got := l.With(x.words...); len(got) != x.lines {
			t.Errorf("%q: %q", x.words, got)
		}
	}
	if all := l.With(); !slices.Equal(all, []string{all[0], all[1]}) || l.String() != all[0]+all[1] {
		t.Errorf("%q of %q", all, l.String())
	}
	time.AfterFunc(5*time.Millisecond, func() { l.Logger().Info("third") })
	l.Wait(t, "third")
}
