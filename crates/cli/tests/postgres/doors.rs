//! Many agents at one server, each a process with a front door of its own, and what happens where the server
//! takes no more connections.

use crate::support::amount::amount;
use crate::support::door::Door;
use crate::support::server;

fn doors(count: usize, address: &str) -> Vec<Door> {
    let open = |at: usize| Door::open(address, &format!("agent-{at}"));
    (0..count).map(open).collect()
}

#[test]
fn many_processes_at_one_server_hold_a_connection_each_and_lose_nothing() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let count = amount("LOOPSTORE_PROCESSES", 64) as usize;
    let mut doors = doors(count, &server.address(&name));
    for round in 0..3 {
        for door in &mut doors {
            door.tell(&format!("prompt {round}"));
        }
        for door in &mut doors {
            door.acknowledged().unwrap();
        }
    }
    let mut client = server.client("postgres");
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'";
    let connections: i64 = client.query_one(sql, &[&name]).unwrap().get(0);
    assert!(
        connections <= count as i64,
        "{connections} of {count} processes"
    );
    println!("{count} idle processes hold {connections} connections");
    for door in doors {
        assert_eq!(door.close(), "");
    }
    let mut client = server.client(&name);
    let sql = "SELECT count(*), count(DISTINCT session_id) FROM v_messages";
    let row = client.query_one(sql, &[]).unwrap();
    let stored: (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(stored, (3 * count as i64, count as i64));
}

#[test]
fn who_finds_no_connection_is_told_what_to_do_and_the_others_go_on() {
    let Some(server) = server::server() else {
        return;
    };
    let name = server.prepared();
    let mut client = server.client(&name);
    let role = format!("crowd_{name}");
    client
        .batch_execute(&format!(
            "CREATE ROLE {role} LOGIN CONNECTION LIMIT 5;
             GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO {role};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {role}"
        ))
        .unwrap();
    let mut doors = doors(12, &server.address_as(&role, &name));
    for door in &mut doors {
        door.tell("prompt");
    }
    let stored = doors.iter_mut().map(|door| door.acknowledged().is_ok());
    let stored: Vec<bool> = stored.collect();
    let count = stored.iter().filter(|is_stored| **is_stored).count();
    assert_eq!(count, 5);
    for (door, is_stored) in doors.into_iter().zip(stored) {
        let said = door.close();
        assert_eq!(said.is_empty(), is_stored, "{said}");
        assert!(
            is_stored || said.contains("raise max_connections"),
            "{said}"
        );
    }
    let sql = "SELECT count(*) FROM v_messages";
    let messages: i64 = client.query_one(sql, &[]).unwrap().get(0);
    assert_eq!(messages, 5);
    client
        .batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
        .unwrap();
}
