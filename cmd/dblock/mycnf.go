package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	"gopkg.in/ini.v1"
)

// completeMySQL takes settings that the data source leaves out from the section [client] of
// ~/.my.cnf, as MySQL's own programs do: user, password, host, port, socket, database.
func completeMySQL(config *mysql.Config, getenv func(string) string) error {
	home := getenv("HOME")
	if home == "" {
		return nil
	}
	file := filepath.Join(home, ".my.cnf")
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	cnf, err := ini.LoadSources(ini.LoadOptions{AllowBooleanKeys: true, SkipUnrecognizableLines: true,
		SpaceBeforeInlineComment: true}, text)
	if err != nil {
		return fmt.Errorf("%s cannot be read", file) // an error would repeat the line, and with it a password
	}
	client := cnf.Section("client")
	say := func(into *string, key string) {
		if *into == "" {
			*into = client.Key(key).String()
		}
	}
	say(&config.User, "user")
	say(&config.Passwd, "password")
	say(&config.DBName, "database")
	if config.Addr != "127.0.0.1:3306" { // the driver's default
		return nil
	}
	switch host, port, socket := client.Key("host").String(), client.Key("port").MustString("3306"),
		client.Key("socket").String(); {
	case host != "":
		config.Addr = net.JoinHostPort(host, port)
	case socket != "":
		config.Net, config.Addr = "unix", socket
	case client.HasKey("port"):
		config.Addr = net.JoinHostPort("127.0.0.1", port)
	}
	return nil
}
