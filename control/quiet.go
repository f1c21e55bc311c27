package control

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// quietBurst is how many refused calls a second are logged; the rest are counted.
// Who makes ten thousand bad calls a second is not to fill the disk with them.
const quietBurst = 20

// quiet logs refused calls, a bounded number of them a second.
type quiet struct {
	logger *slog.Logger
	mu     sync.Mutex
	second int64
	logged int
	left   uint64 // out of the log
}

func (q *quiet) refused(method string, err error) {
	q.refusedAt(time.Now().Unix(), method, err)
}

func (q *quiet) refusedAt(second int64, method string, err error) {
	q.mu.Lock()
	if second != q.second {
		q.second, q.logged = second, 0
	}
	if q.logged == quietBurst {
		q.left++
		q.mu.Unlock()
		return
	}
	q.logged++
	left := q.left
	q.left = 0
	q.mu.Unlock()
	attrs := []slog.Attr{slog.String("method", method), slog.Any("err", err)}
	if left > 0 {
		attrs = append(attrs, slog.Uint64("not_logged_before", left))
	}
	q.logger.LogAttrs(context.Background(), slog.LevelInfo, "call refused", attrs...)
}
