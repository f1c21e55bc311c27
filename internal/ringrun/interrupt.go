package ringrun

import (
	"context"
	"errors"
	"sync"

	"gradnic/service/ring"
)

// closeOn closes the nodes when the context ends: their requests end then, whose buffers an all-reduce would otherwise wait for. The
// function that it returns waits for that, if it has begun.
func closeOn(ctx context.Context, nodes ...*ring.Node) (done func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		var g sync.WaitGroup
		for _, n := range nodes {
			g.Go(func() { _ = n.Close() }) // again, and told, by who made it
		}
		g.Wait()
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}

// interrupted is the error of a run: that it was ended from outside, whatever came of that, or its own.
func interrupted(ctx context.Context, err error, text string) error {
	if err != nil && ctx.Err() != nil {
		return errors.New(text)
	}
	return err
}
