package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// versionInfo is what `gradnic version -j` prints.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified"`
	Time     string `json:"time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// buildVersion reads what the Go tool recorded in the binary: the module's
// version, or the revision of the checkout it was built from.
func buildVersion() versionInfo {
	v := versionInfo{
		Version:  "(devel)",
		Go:       runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			v.Time = s.Value
		}
	}
	return v
}

func newVersionCmd() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildVersion()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(v)
			}
			line := "gradnic " + v.Version
			if v.Revision != "" {
				line += " " + v.Revision[:min(12, len(v.Revision))]
				if v.Modified {
					line += "+changes"
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", line, v.Go, v.Platform)
			return err
		},
	}
	cmd.Flags().BoolVarP(&asJSON, "json", "j", false, "print one JSON document")
	return cmd
}
