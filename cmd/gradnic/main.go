package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameWish is how long after a signal another one says nothing new. Who ends a process may send two of them at once:
// timeout(1) sends its own to the process and to the process's group, which it is in.
const sameWish = 300 * time.Millisecond

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once: stopping must never hang on us.
	context.AfterFunc(ctx, func() {
		time.Sleep(sameWish)
		stop()
	})
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
