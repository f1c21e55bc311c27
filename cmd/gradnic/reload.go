package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"gradnic/control/config"
	"gradnic/control/daemon"
)

// live are the keys that change while a NIC runs; the others need a restart.
var live = []string{"log-level", "stop-timeout", "quota", "stray-packets", "slot-memory", "card", "card-pace"}

// tlsKeys change too while there is a TLS door.
var tlsKeys = []string{"tls-cert", "tls-key", "tls-ca"}

// reloader reads a configuration file again.
type reloader struct {
	file    string
	given   config.Given   // on the command line
	running *pflag.FlagSet // as it runs
	door    daemon.TLS     // with the certificates that it shows now
	level   *slog.LevelVar
	logger  *slog.Logger
}

// read reads the file and the certificates, takes over what can change and returns it for
// the daemon. A file that is wrong, of the certificates too, changes nothing.
func (l *reloader) read() (daemon.Settings, error) {
	if l.file == "" && l.door.Listen == "" {
		return daemon.Settings{}, errors.New("there is no configuration file: start with gradnic run -c FILE")
	}
	var r runFlags
	fresh := pflag.NewFlagSet("run", pflag.ContinueOnError)
	r.register(fresh)
	if err := l.given.To(fresh); err != nil {
		return daemon.Settings{}, err
	}
	if l.file != "" {
		if err := config.ReadFile(l.file, fresh, notKeys...); err != nil {
			return daemon.Settings{}, err
		}
	}
	o, err := r.options()
	if err != nil {
		return daemon.Settings{}, err
	}
	if err := o.TLS.Read(); err != nil {
		return daemon.Settings{}, err
	}
	if err := daemon.Check(o); err != nil {
		return daemon.Settings{}, err
	}
	change := live
	if l.door.Config == nil || o.TLS.Config == nil {
		o.TLS.Config = nil // a door that opens or closes needs a restart
	} else {
		change = append(slices.Clone(live), tlsKeys...)
	}
	done, restart, err := config.Adopt(l.running, fresh, change, notKeys...)
	if err != nil {
		return daemon.Settings{}, err
	}
	if o.TLS.Config != nil {
		done = append(done, renewed(l.door, o.TLS, done)...)
		l.door.Config = o.TLS.Config
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

// renewed are the certificates that differ though their files' names in paths do not.
func renewed(was, is daemon.TLS, paths []config.Change) (all []config.Change) {
	named := func(keys ...string) bool {
		return slices.ContainsFunc(paths, func(c config.Change) bool { return slices.Contains(keys, c.Key) })
	}
	old, fresh := was.Config.Certificates[0], is.Config.Certificates[0]
	if !named("tls-cert", "tls-key") && !slices.EqualFunc(old.Certificate, fresh.Certificate, bytes.Equal) {
		all = append(all, config.Change{Key: "tls-cert", Was: describe(old.Leaf), Is: describe(fresh.Leaf)})
	}
	if !named("tls-ca") && !was.Config.ClientCAs.Equal(is.Config.ClientCAs) {
		all = append(all, config.Change{Key: "tls-ca", Was: is.CA, Is: is.CA + " as it is now"})
	}
	return all
}

func describe(c *x509.Certificate) string {
	return fmt.Sprintf("%s, serial %x, until %s", c.Subject, c.SerialNumber, c.NotAfter.UTC().Format(time.RFC3339))
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
				l.logger.Error("configuration not read: all stays as it was", "changed", 0, "err", oneLine(err.Error()))
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
