package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock/dlock/backend"
)

// table holds one row a lock, of all modes and namespaces.
const table = "dlock_lock"

// ddl makes the table. Names are bytes, so that no collation takes two of them for one
// (Job, job, "job ", jób). Times are DATETIME in UTC: a TIMESTAMP would be converted by
// the time zone of whoever looks, and ends in 2038.
const ddl = "CREATE TABLE IF NOT EXISTS " + table + " (ns VARBINARY(255) NOT NULL, name VARBINARY(255) NOT NULL, " +
	"token VARBINARY(64) NOT NULL, holders MEDIUMBLOB NOT NULL, version BIGINT UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL, " +
	"since DATETIME(6) NOT NULL, expires DATETIME(6) NOT NULL, ttl_us BIGINT UNSIGNED NOT NULL, updated_at DATETIME(6) NOT NULL, " +
	"PRIMARY KEY (ns, name)) ENGINE=InnoDB"

// The parts of statements. UTC_TIMESTAMP is one moment for a whole statement, its
// start; SYSDATE would move on within it.
const (
	now      = "UTC_TIMESTAMP(6)"
	epoch    = "'1970-01-01'"
	never    = "'9999-12-31'" // the end of a hold that ends with its connection
	nowMicro = "TIMESTAMPDIFF(MICROSECOND, " + epoch + ", " + now + ")"
	// forward is the next time stamp of a row, also when the clock was set back.
	forward = "GREATEST(" + now + ", updated_at + INTERVAL 1 MICROSECOND)"
	at      = epoch + " + INTERVAL ? MICROSECOND"
	byKey   = " WHERE ns = ? AND name = ?"
)

// micro reads a column as microseconds.
func micro(column string) string {
	return "TIMESTAMPDIFF(MICROSECOND, " + epoch + ", " + column + ")"
}

// create makes the table. Any number of contenders may do so at once.
func (s *session) create(ctx context.Context) error {
	_, err := s.exec(ctx, ddl)
	switch number(err) {
	case 1050: // somebody else was quicker
		return nil
	case accessRefused:
		return &opError{msg: fmt.Sprintf("%s: the table is missing and this user may not make it; let somebody who may run: %s",
			s.b.opts.address(), ddl), kind: backend.ErrDenied, err: err, answered: true, final: true}
	}
	return err
}

const shapeQuery = `SELECT
 (SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '` + table + `'),
 (SELECT GROUP_CONCAT(INDEX_NAME, '.', COLUMN_NAME ORDER BY INDEX_NAME, SEQ_IN_INDEX) FROM information_schema.STATISTICS
  WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '` + table + `' AND NON_UNIQUE = 0),
 (SELECT COUNT(*) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '` + table + `'
  AND COLUMN_NAME IN ('ns', 'name') AND DATA_TYPE = 'varbinary' AND CHARACTER_MAXIMUM_LENGTH >= 255)`

// checkShape refuses a table that somebody made otherwise: without its key everybody
// would get the lock, and with another collation two names could be one. It is looked
// at when a row was inserted, once by each process: a row that is there proves nothing.
func (s *session) checkShape(ctx context.Context, token string) error {
	if s.b.sound.Load() {
		return nil
	}
	v, err := s.one(ctx, shapeQuery)
	if err != nil {
		return err
	}
	if !strings.EqualFold(v.text(0), "InnoDB") || v.text(1) != "PRIMARY.ns,PRIMARY.name" || v.number(2) != 2 {
		// Not left behind: the next one inserts a row and looks, too.
		_, _ = s.exec(ctx, "DELETE FROM "+table+" WHERE token = ?", token)
		return &opError{msg: fmt.Sprintf(wrongShape, s.b.opts.address()), kind: backend.ErrUnavailable, err: errShape, answered: true, final: true}
	}
	s.b.sound.Store(true)
	return nil
}
