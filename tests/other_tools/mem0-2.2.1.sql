CREATE TABLE history (
                        id           TEXT PRIMARY KEY,
                        memory_id    TEXT,
                        old_memory   TEXT,
                        new_memory   TEXT,
                        event        TEXT,
                        created_at   DATETIME,
                        updated_at   DATETIME,
                        is_deleted   INTEGER,
                        actor_id     TEXT,
                        role         TEXT
                    );
INSERT INTO history VALUES ('457f3fda-2ef6-4cd9-9ec5-e846ae6a5f59', 'a1', NULL, 'User is vegetarian', 'ADD', '2025-03-01T10:00:00+00:00', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('b9bcbd73-251e-456b-85c1-6b81eb6dfc82', 'a2', NULL, 'User lives in Lisbon', 'ADD', '2025-03-02T10:00:00+00:00', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('c8179522-86c4-4801-849c-c8c965f71e4a', 'a2', 'User lives in Lisbon', 'User lives in Porto', 'UPDATE', '2025-03-02T10:00:00+00:00', '2025-03-03T10:00:00+00:00', 0, NULL, NULL);
INSERT INTO history VALUES ('e7988e33-d64f-4a57-87f8-acff9d0b8a37', 'a3', NULL, 'User likes jazz', 'ADD', '2025-03-04T10:00:00+00:00', NULL, 0, NULL, NULL);
INSERT INTO history VALUES ('0ff402cb-7f41-4b8e-a3fe-e969f487b4df', 'a3', 'User likes jazz', NULL, 'DELETE', '2025-03-04T10:00:00+00:00', '2025-03-05T10:00:00+00:00', 1, NULL, NULL);
INSERT INTO history VALUES ('79bc1ee6-fd54-481a-bb97-ff9a8bc57125', 'a4', NULL, '用户每天早上跑步', 'ADD', '2025-03-06T10:00:00+00:00', NULL, 0, NULL, NULL);
