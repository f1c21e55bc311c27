package report

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// AgreeFiles is [Agree] for two files, or for two folders: every document of one that the other has under the same name. Alone are
// the names of those that one folder has and the other has not. Files of a folder that are no such documents, as the tables of
// nccl-tests' form beside them, do not count; two folders with nothing in common are an error.
func AgreeFiles(first, second string, tolerance float64) (all []*Agreement, alone []string, err error) {
	folders := [2]bool{}
	for i, path := range []string{first, second} {
		s, err := os.Stat(path)
		if err != nil {
			return nil, nil, fmt.Errorf("report: %w", err)
		}
		folders[i] = s.IsDir()
	}
	switch {
	case folders[0] != folders[1]:
		return nil, nil, fmt.Errorf("report: %s and %s: two files or two folders are needed, not one of each", first, second)
	case !folders[0]:
		a, err := agreeFiles(first, second, tolerance)
		if err != nil {
			return nil, nil, err
		}
		return []*Agreement{a}, nil, nil
	}
	names, err := documents(first)
	if err != nil {
		return nil, nil, err
	}
	others, err := documents(second)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if !slices.Contains(others, name) {
			alone = append(alone, name)
			continue
		}
		a, err := agreeFiles(filepath.Join(first, name), filepath.Join(second, name), tolerance)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, a)
	}
	for _, name := range others {
		if !slices.Contains(names, name) {
			alone = append(alone, name)
		}
	}
	if len(all) == 0 {
		return nil, nil, fmt.Errorf("report: %s and %s have no report of the same name", first, second)
	}
	return all, alone, nil
}

// documents are the names of a folder's files that are reports.
func documents(folder string) (names []string, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("report: %s: %w", folder, err)
	}
	for _, path := range paths {
		r, err := Read(path)
		if err != nil {
			return nil, err
		}
		if !isTable(r) {
			names = append(names, filepath.Base(path))
		}
	}
	return names, nil
}

// isTable tells a table of nccl-tests' form from a report: its rows have no names.
func isTable(r *Report) bool {
	return len(r.Rows) > 0 && !slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Name != "" })
}

func agreeFiles(first, second string, tolerance float64) (*Agreement, error) {
	var r [2]*Report
	for i, path := range []string{first, second} {
		var err error
		if r[i], err = Read(path); err != nil {
			return nil, err
		}
		if r[i].Interrupted != "" {
			return nil, fmt.Errorf("report: %s was interrupted (%s): it cannot be held against another run", path, r[i].Interrupted)
		}
	}
	a, err := Agree(r[0], r[1], tolerance)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", first, second, err)
	}
	return a, nil
}
