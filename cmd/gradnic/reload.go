package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"gradnic/control/config"
	"gradnic/control/daemon"
)

// live are the keys that change while a NIC runs; the others need a restart.
var live = []string{"log-level", "stop-timeout", "quota", "stray-packets", "slot-memory", "card", "card-pace"}

// reloader reads a configuration file again.
type reloader struct {
	file    string
	given   config.Given   // on the command line
	running *pflag.FlagSet // as it runs
	level   *slog.LevelVar
	logger  *slog.Logger
}

// read reads the file, takes over what can change and returns it for the daemon.
// A file that is wrong changes nothing.
func (l *reloader) read() (daemon.Settings, error) {
	if l.file == "" {
		return daemon.Settings{}, errors.New("there is no configuration file: start with gradnic run -c FILE")
	}
	var r runFlags
	fresh := pflag.NewFlagSet("run", pflag.ContinueOnError)
	r.register(fresh)
	if err := l.given.To(fresh); err != nil {
		return daemon.Settings{}, err
	}
	if err := config.ReadFile(l.file, fresh, notKeys...); err != nil {
		return daemon.Settings{}, err
	}
	o, err := r.options()
	if err != nil {
		return daemon.Settings{}, err
	}
	if err := daemon.Check(o); err != nil {
		return daemon.Settings{}, err
	}
	done, restart, err := config.Adopt(l.running, fresh, live, notKeys...)
	if err != nil {
		return daemon.Settings{}, err
	}
	// What changes is logged under the more talkative level of the two.
	l.level.Set(min(l.level.Level(), r.logLevel))
	defer l.level.Set(r.logLevel)
	for _, c := range done {
		l.logger.Info("configuration changed", "key", c.Key, "was", c.Was, "is", c.Is)
	}
	for _, c := range restart {
		l.logger.Warn("configuration needs a restart", "key", c.Key, "runs", c.Was, "file", c.Is)
	}
	l.logger.Info("configuration read", "file", l.file, "changed", len(done), "need_restart", len(restart))
	return o.Settings(), nil
}

// watchReload reads the file at each SIGHUP until stop is called.
func watchReload(ctx context.Context, l *reloader) (settings <-chan daemon.Settings, stop func()) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan daemon.Settings)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
			}
			s, err := l.read()
			if err != nil {
				l.logger.Error("configuration not read: all stays as it was", "err", oneLine(err.Error()))
				continue
			}
			select {
			case out <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, func() {
		signal.Stop(hup)
		cancel()
		<-done
	}
}
