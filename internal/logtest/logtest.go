// Package logtest has a log that a test reads while others write it.
package logtest

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// Lines is what was written to it; the zero value is empty.
type Lines struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String is all that was written so far.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Logger writes to it, as text, from level info.
func (l *Lines) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// With are the lines that contain all of the words.
func (l *Lines) With(words ...string) (lines []string) {
next:
	for line := range strings.Lines(l.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Wait waits until a text was written, and fails the test when it is not within 20 s.
func (l *Lines) Wait(t testing.TB, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if strings.Contains(l.String(), want) {
			return
		}
	}
	t.Fatalf("no %q in:\n%s", want, l)
}
