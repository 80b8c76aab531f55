-- A ledger as version 3 of the schema wrote it; it must load for ever.
BEGIN TRANSACTION;
CREATE TABLE events (
    seq        INTEGER PRIMARY KEY,
    job_id     TEXT NOT NULL REFERENCES jobs (job_id),
    at         TEXT NOT NULL,
    event      TEXT NOT NULL,
    from_state TEXT,
    to_state   TEXT NOT NULL,
    attempt    INTEGER NOT NULL,
    host       TEXT,
    who        TEXT NOT NULL,
    why        TEXT NOT NULL
) STRICT;
INSERT INTO "events" VALUES(1,'2a58856b913735b3b3e2ce6e27b4fbee029a993dfedbca81c901d925ef4e58f1','2026-05-28T20:26:57.250Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(2,'2a58856b913735b3b3e2ce6e27b4fbee029a993dfedbca81c901d925ef4e58f1','2026-05-28T20:27:14.500Z','assigned','pending','claimed',1,'tower','coordinator','');
INSERT INTO "events" VALUES(3,'2a58856b913735b3b3e2ce6e27b4fbee029a993dfedbca81c901d925ef4e58f1','2026-05-28T20:27:31.750Z','refused','claimed','pending',1,NULL,'host:tower','needs 6 GiB of VRAM, 4.1 GiB are free');
INSERT INTO "events" VALUES(4,'b28ea3fdf446d4a0275c5d1b97ae6994fd96d27acf4c6f9a15552bbd594dc454','2026-05-28T20:27:49.000Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(5,'b28ea3fdf446d4a0275c5d1b97ae6994fd96d27acf4c6f9a15552bbd594dc454','2026-05-28T20:28:06.250Z','assigned','pending','claimed',1,'laptop','coordinator','');
INSERT INTO "events" VALUES(6,'bef68d23dcfeb85a7db3a8f6d0fb60974cd01234a484be709bebe288357f272f','2026-05-28T20:28:23.500Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(7,'bef68d23dcfeb85a7db3a8f6d0fb60974cd01234a484be709bebe288357f272f','2026-05-28T20:28:40.750Z','assigned','pending','claimed',1,'pi','coordinator','');
INSERT INTO "events" VALUES(8,'bef68d23dcfeb85a7db3a8f6d0fb60974cd01234a484be709bebe288357f272f','2026-05-28T20:28:58.000Z','started','claimed','running',1,'pi','host:pi','slot 0, pid 4711');
INSERT INTO "events" VALUES(9,'502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316','2026-05-28T20:29:15.250Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(10,'502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316','2026-05-28T20:29:32.500Z','assigned','pending','claimed',1,'pi','coordinator','');
INSERT INTO "events" VALUES(11,'502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316','2026-05-28T20:29:49.750Z','started','claimed','running',1,'pi','host:pi','slot 0, pid 4711');
INSERT INTO "events" VALUES(12,'502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316','2026-05-28T20:30:07.000Z','completed','running','completed',1,'pi','host:pi','');
INSERT INTO "events" VALUES(13,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:30:24.250Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(14,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:30:41.500Z','assigned','pending','claimed',1,'laptop','coordinator','');
INSERT INTO "events" VALUES(15,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:30:58.750Z','started','claimed','running',1,'laptop','host:laptop','slot 0, pid 4711');
INSERT INTO "events" VALUES(16,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:31:16.000Z','lost','running','pending',1,'laptop','coordinator','no heartbeat vouched for it in time');
INSERT INTO "events" VALUES(17,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:31:50.500Z','resumed','pending','running',1,'laptop','host:laptop','it is still at work on it');
INSERT INTO "events" VALUES(18,'966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','2026-05-28T20:32:07.750Z','completed','running','completed',1,'laptop','host:laptop','');
INSERT INTO "events" VALUES(19,'69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b','2026-05-28T20:32:25.000Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(20,'69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b','2026-05-28T20:32:42.250Z','assigned','pending','claimed',1,'tower','coordinator','');
INSERT INTO "events" VALUES(21,'69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b','2026-05-28T20:32:59.500Z','started','claimed','running',1,'tower','host:tower','slot 0, pid 4711');
INSERT INTO "events" VALUES(22,'69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b','2026-05-28T20:33:16.750Z','failed','running','failed',1,'tower','host:tower','');
INSERT INTO "events" VALUES(23,'5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','2026-05-28T20:33:34.000Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(24,'5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','2026-05-28T20:33:51.250Z','assigned','pending','claimed',1,'laptop','coordinator','');
INSERT INTO "events" VALUES(25,'5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','2026-05-28T20:34:08.500Z','started','claimed','running',1,'laptop','host:laptop','slot 0, pid 4711');
INSERT INTO "events" VALUES(26,'5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','2026-05-28T20:34:25.750Z','exhausted','running','failed',1,'laptop','coordinator','the machine was restarted');
INSERT INTO "events" VALUES(27,'5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','2026-05-28T20:34:43.000Z','kept','failed','failed',1,'laptop','host:laptop','it finished after it was given up; `fleet requeue` takes the result');
INSERT INTO "events" VALUES(28,'cf5766d16d7e9814125761d05758adce1036c8e09b2a6b2b0c2cf3e8e51001f7','2026-05-28T20:35:00.250Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(29,'cf5766d16d7e9814125761d05758adce1036c8e09b2a6b2b0c2cf3e8e51001f7','2026-05-28T20:35:17.500Z','assigned','pending','claimed',1,'pi','coordinator','');
INSERT INTO "events" VALUES(30,'cf5766d16d7e9814125761d05758adce1036c8e09b2a6b2b0c2cf3e8e51001f7','2026-05-28T20:35:34.750Z','cancelled','claimed','cancelled',1,'pi','operator:anna-laptop','');
INSERT INTO "events" VALUES(31,'22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','2026-05-28T20:35:52.000Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(32,'22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','2026-05-28T20:36:09.250Z','assigned','pending','claimed',1,'pi','coordinator','');
INSERT INTO "events" VALUES(33,'22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','2026-05-28T20:36:26.500Z','started','claimed','running',1,'pi','host:pi','slot 0, pid 4711');
INSERT INTO "events" VALUES(34,'22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','2026-05-28T20:36:43.750Z','completed','running','completed',1,'pi','host:pi','');
INSERT INTO "events" VALUES(35,'22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','2026-05-28T20:37:01.000Z','requeued','completed','pending',1,NULL,'operator:anna-laptop','');
INSERT INTO "events" VALUES(36,'9a642b75e9b5b353361f7cd2354db38b0fbb78910ab76351edb8fe286a6a308d','2026-05-28T20:37:18.250Z','added',NULL,'pending',0,NULL,'manifest','');
INSERT INTO "events" VALUES(37,'9a642b75e9b5b353361f7cd2354db38b0fbb78910ab76351edb8fe286a6a308d','2026-05-28T20:37:35.500Z','orphaned','pending','pending',0,NULL,'manifest','not in the manifest');
CREATE TABLE hosts (
    host       TEXT PRIMARY KEY,
    drained    INTEGER NOT NULL CHECK (drained IN (0, 1)),  -- an operator keeps new jobs off it
    quarantine TEXT,                                        -- why the fleet does, if it does
    at         TEXT NOT NULL,
    who        TEXT NOT NULL
) STRICT;
INSERT INTO "hosts" VALUES('lab',1,NULL,'2026-11-20T10:00:00.000Z','operator:cli-1');
CREATE TABLE jobs (
    job_id        TEXT PRIMARY KEY CHECK (length(job_id) = 64),
    name          TEXT NOT NULL,
    model         TEXT NOT NULL,
    mode          TEXT NOT NULL,
    spec          TEXT NOT NULL,                -- JSON, coordinator.manifest.reader.spec_to_json
    priority      INTEGER NOT NULL,
    in_plan       INTEGER NOT NULL CHECK (in_plan IN (0, 1)),
    state         TEXT NOT NULL CHECK (
        state IN ('pending', 'claimed', 'running', 'completed', 'failed', 'cancelled')),
    attempt       INTEGER NOT NULL CHECK (attempt >= 0),  -- fencing token
    losses        INTEGER NOT NULL CHECK (losses >= 0),   -- attempts that ended by a lost lease
    host          TEXT,                         -- whoever was given the newest attempt
    instance      TEXT,                         -- the agent process that took it
    error         TEXT,
    artifact_id   TEXT CHECK (artifact_id IS NULL OR length(artifact_id) = 64),
    metrics       TEXT,                         -- JSON
    created_at    TEXT NOT NULL,
    pending_since TEXT NOT NULL,
    started_at    TEXT,
    finished_at   TEXT, failures INTEGER NOT NULL DEFAULT 0 CHECK (failures >= 0), not_before TEXT, checkpoint_id TEXT
    CHECK (checkpoint_id IS NULL OR length(checkpoint_id) = 64), checkpoint_bytes INTEGER
    CHECK ((checkpoint_bytes IS NULL) = (checkpoint_id IS NULL)), checkpoint_attempt INTEGER
    CHECK ((checkpoint_attempt IS NULL) = (checkpoint_id IS NULL)),
    CHECK ((state IN ('completed', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (state NOT IN ('claimed', 'running') OR (host IS NOT NULL AND attempt >= 1)),
    CHECK (state <> 'completed' OR artifact_id IS NOT NULL),
    CHECK ((state = 'failed') = (error IS NOT NULL))
) STRICT;
INSERT INTO "jobs" VALUES('2a58856b913735b3b3e2ce6e27b4fbee029a993dfedbca81c901d925ef4e58f1','gru-oracle','gru','oracle','{"allowed_hosts":[],"denied_hosts":["pi"],"hyper":{"hidden":64,"lr":0.003},"job_id":"2a58856b913735b3b3e2ce6e27b4fbee029a993dfedbca81c901d925ef4e58f1","mode":"oracle","model":"gru","n_resamples":200,"name":"gru-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":6.0,"prefer_cuda":false,"require_cuda":true},"on_lost":"keep","priority":5,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',5,1,'pending',1,0,NULL,NULL,NULL,NULL,NULL,'2026-05-28T20:26:57.250Z','2026-05-28T20:27:31.750Z',NULL,NULL,1,'2026-11-20T10:05:00.000Z',NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('b28ea3fdf446d4a0275c5d1b97ae6994fd96d27acf4c6f9a15552bbd594dc454','mlp-realistic','mlp','realistic','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"dropout":0.1,"layers":[64,64]},"job_id":"b28ea3fdf446d4a0275c5d1b97ae6994fd96d27acf4c6f9a15552bbd594dc454","mode":"realistic","model":"mlp","n_resamples":200,"name":"mlp-realistic","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'claimed',1,0,'laptop','i-laptop',NULL,NULL,NULL,'2026-05-28T20:27:49.000Z','2026-05-28T20:27:49.000Z',NULL,NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('bef68d23dcfeb85a7db3a8f6d0fb60974cd01234a484be709bebe288357f272f','gbt-realistic','gbt','realistic','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"epochs":400,"lr":0.1},"job_id":"bef68d23dcfeb85a7db3a8f6d0fb60974cd01234a484be709bebe288357f272f","mode":"realistic","model":"gbt","n_resamples":200,"name":"gbt-realistic","needs":{"min_cores":2,"min_ram_gib":1.0,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":3,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',3,1,'running',1,0,'pi','i-pi',NULL,NULL,NULL,'2026-05-28T20:28:23.500Z','2026-05-28T20:28:23.500Z','2026-05-28T20:28:58.000Z',NULL,0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316','gbt-oracle','gbt','oracle','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"epochs":400,"lr":0.1},"job_id":"502dd1ec88e94e32e480360c6534b2ccefdc87552f54d15d037e5181e8dc9316","mode":"oracle","model":"gbt","n_resamples":200,"name":"gbt-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'completed',1,0,'pi','i-pi',NULL,'abababababababababababababababababababababababababababababababab','{"auroc": 0.7012, "auroc_ci": [0.68, 0.72], "n": 1200}','2026-05-28T20:29:15.250Z','2026-05-28T20:29:15.250Z','2026-05-28T20:29:49.750Z','2026-05-28T20:30:07.000Z',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581','gbt-blind','gbt','blind','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"epochs":800},"job_id":"966c0a9703c8a21f08a19f31357ebf160e5e15e65e0efdd0792ee0e9b4f52581","mode":"blind","model":"gbt","n_resamples":200,"name":"gbt-blind","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'completed',1,1,'laptop','i-laptop',NULL,'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd','{"auroc": 0.65}','2026-05-28T20:30:24.250Z','2026-05-28T20:31:16.000Z','2026-05-28T20:31:33.250Z','2026-05-28T20:32:07.750Z',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b','logreg-oracle','logreg','oracle','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"c":1.0},"job_id":"69672c89453675fd8ebf59f34b7b31f0b7da7563d9c9232602e8f766008a568b","mode":"oracle","model":"logreg","n_resamples":200,"name":"logreg-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'failed',1,0,'tower','i-tower','ValueError: no rows of host web-2
(“Zeile 3”)',NULL,NULL,'2026-05-28T20:32:25.000Z','2026-05-28T20:32:25.000Z','2026-05-28T20:32:59.500Z','2026-05-28T20:33:16.750Z',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b','tcn-oracle','tcn','oracle','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"kernel":3},"job_id":"5ead52968e5399db3a94e03f854c5580f68572c618053c2beb815e2b3fb0dd5b","mode":"oracle","model":"tcn","n_resamples":200,"name":"tcn-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'failed',1,3,'laptop','i-laptop','lost 3 times, the last time on laptop: the machine was restarted','efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef','{"auroc": 0.71}','2026-05-28T20:33:34.000Z','2026-05-28T20:33:34.000Z','2026-05-28T20:34:08.500Z','2026-05-28T20:34:25.750Z',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('cf5766d16d7e9814125761d05758adce1036c8e09b2a6b2b0c2cf3e8e51001f7','tcn-blind','tcn','blind','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"kernel":5},"job_id":"cf5766d16d7e9814125761d05758adce1036c8e09b2a6b2b0c2cf3e8e51001f7","mode":"blind","model":"tcn","n_resamples":200,"name":"tcn-blind","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'cancelled',1,0,'pi','i-pi',NULL,NULL,NULL,'2026-05-28T20:35:00.250Z','2026-05-28T20:35:00.250Z',NULL,'2026-05-28T20:35:34.750Z',0,NULL,NULL,NULL,NULL);
INSERT INTO "jobs" VALUES('22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920','mlp-oracle','mlp','oracle','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"layers":[32]},"job_id":"22b89d073144e390f707576d41f0ba3fa06eb9d23ec1990977a254f6db0b3920","mode":"oracle","model":"mlp","n_resamples":200,"name":"mlp-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,1,'pending',1,0,NULL,NULL,NULL,NULL,NULL,'2026-05-28T20:35:52.000Z','2026-05-28T20:37:01.000Z',NULL,NULL,0,NULL,'0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c',4096,1);
INSERT INTO "jobs" VALUES('9a642b75e9b5b353361f7cd2354db38b0fbb78910ab76351edb8fe286a6a308d','old-oracle','gbt','oracle','{"allowed_hosts":[],"denied_hosts":[],"hyper":{"epochs":10},"job_id":"9a642b75e9b5b353361f7cd2354db38b0fbb78910ab76351edb8fe286a6a308d","mode":"oracle","model":"gbt","n_resamples":200,"name":"old-oracle","needs":{"min_cores":null,"min_ram_gib":null,"min_vram_gib":null,"prefer_cuda":false,"require_cuda":false},"on_lost":"keep","priority":0,"seed":7,"split_recipe":"host","train_hosts":["web-1","web-2"]}',0,0,'pending',0,0,NULL,NULL,NULL,NULL,NULL,'2026-05-28T20:37:18.250Z','2026-05-28T20:37:18.250Z',NULL,NULL,0,NULL,NULL,NULL,NULL);
CREATE INDEX events_by_job ON events (job_id, seq);
COMMIT;
PRAGMA user_version = 3;
